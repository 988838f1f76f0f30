//! A pickle's memo: numbered values, stored densely where the numbers are consecutive, as picklers write them.

use std::collections::BTreeMap;

use super::value::Value;

/// Limit on the values of a memo.
const MOST: usize = 1 << 22;
/// Limit on values whose numbers are not consecutive.
const MOST_SCATTERED: usize = 1 << 16;

#[derive(Default)]
pub struct Memo<'a> {
    counted: Vec<Value<'a>>,
    scattered: BTreeMap<u64, Value<'a>>,
}

impl<'a> Memo<'a> {
    /// Number of the next value that is stored without one.
    pub fn next(&self) -> u64 {
        (self.counted.len() + self.scattered.len()) as u64
    }

    pub fn get(&self, place: u64) -> Option<&Value<'a>> {
        let counted = usize::try_from(place)
            .ok()
            .and_then(|idx| self.counted.get(idx));
        counted.or_else(|| self.scattered.get(&place))
    }

    /// Stores a value; it replaces an earlier one of the same number.
    pub fn insert(&mut self, place: u64, value: Value<'a>) -> Result<(), String> {
        let n = self.counted.len();
        match usize::try_from(place) {
            Ok(idx) if idx < n => self.counted[idx] = value,
            Ok(idx) if idx == n && n < MOST && !self.scattered.contains_key(&place) => {
                self.counted.push(value);
            }
            // Python 2 counts from 1.
            Ok(1) if n == 0 && !self.scattered.contains_key(&0) => {
                self.counted.extend([Value::None, value]);
            }
            _ if self.scattered.len() < MOST_SCATTERED => {
                self.scattered.insert(place, value);
            }
            _ => return Err("too many values in the memo".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_and_scattered_numbers_are_found_again() {
        let mut memo = Memo::default();
        for (place, n) in [(0, 10), (1, 11), (7, 17), (u64::MAX, 18), (1, 12), (7, 19)] {
            memo.insert(place, Value::Int(n)).expect("room");
        }
        for (place, n) in [(0, 10), (1, 12), (7, 19), (u64::MAX, 18)] {
            assert_eq!(memo.get(place), Some(&Value::Int(n)), "{place}");
        }
        assert_eq!(memo.get(2), None);
        // A number that was first stored out of order keeps its newest value when counting reaches it.
        for (place, n) in [(2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8)] {
            memo.insert(place, Value::Int(n)).expect("room");
        }
        for (place, n) in [(2, 2), (7, 7), (8, 8)] {
            assert_eq!(memo.get(place), Some(&Value::Int(n)), "{place}");
        }
    }

    #[test]
    fn a_memo_may_count_from_one() {
        let mut memo = Memo::default();
        memo.insert(1, Value::Int(1)).expect("room");
        memo.insert(2, Value::Int(2)).expect("room");
        assert_eq!(memo.get(2), Some(&Value::Int(2)));
        assert!(memo.scattered.is_empty());
    }

    #[test]
    fn a_memo_with_too_many_scattered_numbers_is_refused() {
        let mut memo = Memo::default();
        let mut places = (0..).map(|n| 2 * n + 5);
        let refused = places.find(|place| memo.insert(*place, Value::None).is_err());
        assert_eq!(refused, Some(2 * MOST_SCATTERED as u64 + 5));
    }
}
