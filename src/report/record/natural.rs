//! Natural order of names: `step-50` before `step-450`.

use std::cmp::Ordering;

/// Compares runs of digits by value and other characters by code.
pub fn natural(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left, right);
    loop {
        match (a.chars().next(), b.chars().next()) {
            (None, None) => break,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let ([m, n], rest) = ([digits(a), digits(b)], [after(a), after(b)]);
                // The longer number is larger; nothing is parsed, so that nothing overflows.
                let order = m.len().cmp(&n.len()).then_with(|| m.cmp(n));
                if order != Ordering::Equal {
                    return order;
                }
                [a, b] = rest;
            }
            (Some(x), Some(y)) => {
                if x != y {
                    return x.cmp(&y);
                }
                (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
            }
        }
    }
    // Only leading zeros may differ now: compare them too, for a total order.
    left.cmp(right)
}

/// Returns the digits at the start of a text, without leading zeros.
fn digits(text: &str) -> &str {
    let end = text.len() - after(text).len();
    text[..end].trim_start_matches('0')
}

fn after(text: &str) -> &str {
    text.trim_start_matches(|letter: char| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_in_names_compare_by_value() {
        let mut names = [
            "step-450",
            "step-50",
            "step-7b",
            "step-7a",
            "step",
            "step-007",
            "a10b2",
            "a10b10",
            "a9",
            "step-99999999999999999999999",
            "é2",
            "é10",
        ];
        names.sort_by(|a, b| natural(a, b));
        let expected = [
            "a9",
            "a10b2",
            "a10b10",
            "step",
            "step-007",
            "step-7a",
            "step-7b",
            "step-50",
            "step-450",
            "step-99999999999999999999999",
            "é2",
            "é10",
        ];
        assert_eq!(names, expected);
    }
}
