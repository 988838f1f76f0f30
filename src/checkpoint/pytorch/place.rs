//! Locates a described tensor in the file by its shape, strides, offset and storage.

use std::ops::Range;

use super::value::{Storage, StoredTensor};

/// Byte range from the first to the last element, and strides unless they are row-major.
#[derive(Debug, PartialEq)]
pub struct Place {
    pub bytes: Range<usize>,
    pub strides: Option<Vec<usize>>,
}

/// Checks a tensor against its storage, which is at `stored` in the file.
///
/// # Errors
/// When the tensor reaches beyond its storage, has more elements than it, or its size overflows.
pub fn place(
    tensor: &StoredTensor,
    storage: &Storage,
    stored: &Range<usize>,
) -> Result<Place, String> {
    let size = storage.dtype.size();
    let held = storage.n_elements;
    if held.checked_mul(size).is_none_or(|n| n > stored.len()) {
        return Err(format!(
            "its storage claims {held} elements of {size} bytes, {} bytes are stored",
            stored.len()
        ));
    }
    let (first, n_visible) = storage.part.unwrap_or((0, held));
    if first.checked_add(n_visible).is_none_or(|end| end > held) {
        return Err(format!(
            "its part of {n_visible} elements at {first} reaches beyond a storage of {held}"
        ));
    }
    let shape = &tensor.shape;
    let too_large = || format!("shape {shape:?} is too large");
    // Empty dimensions count as 1, so that no partial product of the shape can overflow.
    let mut n_at_most = 1usize;
    for n in shape {
        n_at_most = n_at_most.checked_mul((*n).max(1)).ok_or_else(too_large)?;
    }
    if shape.contains(&0) {
        return Ok(Place {
            bytes: stored.start..stored.start,
            strides: None,
        });
    }
    if n_at_most > n_visible {
        return Err(format!(
            "shape {shape:?} has {n_at_most} elements, its storage holds {n_visible}"
        ));
    }
    let steps = shape.iter().zip(&tensor.strides);
    let last = steps.clone().try_fold(tensor.offset, |last, (n, stride)| {
        last.checked_add((n - 1).checked_mul(*stride)?)
    });
    let Some(last) = last.filter(|last| *last < n_visible) else {
        return Err(format!(
            "shape {shape:?} with strides {:?} at {} reaches beyond a storage of {n_visible} elements",
            tensor.strides, tensor.offset
        ));
    };
    let mut row_major = 1;
    let mut is_row_major = true;
    for (n, stride) in steps.rev() {
        is_row_major &= *n == 1 || *stride == row_major;
        row_major *= n;
    }
    let start = stored.start + (first + tensor.offset) * size;
    Ok(Place {
        bytes: start..stored.start + (first + last + 1) * size,
        strides: (!is_row_major).then(|| tensor.strides.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;
    use std::rc::Rc;

    fn of(shape: &[usize], strides: &[usize], offset: usize) -> Result<Place, String> {
        let storage = Storage {
            key: Rc::from("0"),
            dtype: Dtype::F32,
            n_elements: 12,
            part: None,
        };
        let tensor = StoredTensor {
            storage_idx: 0,
            offset,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
        };
        place(&tensor, &storage, &(100..148))
    }

    #[test]
    fn a_row_major_tensor_is_a_contiguous_range() {
        let found = of(&[2, 4], &[4, 1], 4).expect("fits");
        assert_eq!((found.bytes, found.strides), (116..148, None));
        // The stride of a dimension of one element does not matter.
        let found = of(&[1, 4], &[77, 1], 0).expect("fits");
        assert_eq!((found.bytes, found.strides), (100..116, None));
        let found = of(&[], &[], 11).expect("fits");
        assert_eq!((found.bytes, found.strides), (144..148, None));
    }

    #[test]
    fn a_transposed_tensor_keeps_its_strides() {
        let found = of(&[4, 3], &[1, 4], 0).expect("fits");
        assert_eq!((found.bytes, found.strides), (100..148, Some(vec![1, 4])));
    }

    #[test]
    fn an_empty_tensor_has_no_bytes() {
        assert_eq!(of(&[0, 5], &[5, 1], 0).expect("fits").bytes, 100..100);
        assert!(of(&[usize::MAX, usize::MAX, 0], &[1, 1, 1], 0).is_err());
    }

    #[test]
    fn a_tensor_beyond_its_storage_is_refused() {
        for (shape, strides, offset) in [
            (&[3, 4][..], &[4, 1][..], 1),
            (&[13], &[0], 0),
            (&[2], &[usize::MAX], 0),
            (&[2, 2], &[usize::MAX, 1], 2),
            (&[1 << 40, 1 << 40], &[0, 0], 0),
            (&[1], &[1], usize::MAX),
        ] {
            let refused = of(shape, strides, offset);
            assert!(refused.is_err(), "{shape:?} {strides:?} {offset}");
        }
    }
}
