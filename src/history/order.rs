//! Order of reading steps: the newest, the oldest, then the middle of the longest unread range, so that the shape of a
//! training is visible after a few steps.

/// Returns the index of the step to read next; `None` if all are read.
pub fn next(is_read: &[bool]) -> Option<usize> {
    let n = is_read.len();
    if n == 0 {
        return None;
    }
    if !is_read[n - 1] {
        return Some(n - 1);
    }
    if !is_read[0] {
        return Some(0);
    }
    // The middle of the longest unread range; among equal ranges, the newest.
    let (mut longest, mut begin) = (0, 0);
    let mut middle = None;
    for (at, _) in is_read.iter().enumerate().filter(|(_, is_read)| **is_read) {
        let length = at - begin;
        if at > begin && length > 1 && length >= longest {
            longest = length;
            middle = Some(begin + length / 2);
        }
        begin = at;
    }
    middle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(n: usize) -> Vec<usize> {
        let mut is_read = vec![false; n];
        let mut order = Vec::new();
        while let Some(at) = next(&is_read) {
            assert!(!is_read[at]);
            is_read[at] = true;
            order.push(at);
        }
        assert!(is_read.into_iter().all(|is| is), "{order:?}");
        order
    }

    #[test]
    fn ends_middle_and_quarters_come_first_and_every_step_is_read_once() {
        assert_eq!(order(9), [8, 0, 4, 6, 2, 7, 5, 3, 1]);
        assert_eq!(order(1), [0]);
        assert_eq!(order(2), [1, 0]);
        assert_eq!(order(3), [2, 0, 1]);
        assert_eq!(order(0), [0; 0]);
        order(1000);
    }

    #[test]
    fn a_step_that_appears_late_is_next() {
        assert_eq!(next(&[true, true, false]), Some(2));
        assert_eq!(next(&[true, false, true, false, false, true]), Some(3));
    }
}
