//! Products of sizes that files claim, checked for overflow.

/// Counts the elements of a shape; `None` if a product of its non-zero axes overflows.
///
/// The axes of an accepted shape can be multiplied in any order and subset: a 0 does not hide an overflow of the others.
pub(super) fn n_elements(shape: &[usize]) -> Option<usize> {
    let of_full = shape
        .iter()
        .try_fold(1usize, |n, axis| n.checked_mul((*axis).max(1)))?;
    // Strides and bytes must not overflow either; elements have at most 8 bytes.
    of_full.checked_mul(8)?;
    Some(if shape.contains(&0) { 0 } else { of_full })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_of_0_hides_no_overflow() {
        assert_eq!(n_elements(&[]), Some(1));
        assert_eq!(n_elements(&[2, 3]), Some(6));
        assert_eq!(n_elements(&[2, 0, 3]), Some(0));
        assert_eq!(n_elements(&[0, 1 << 40, 1 << 40]), None);
        assert_eq!(n_elements(&[1 << 62]), None);
    }
}
