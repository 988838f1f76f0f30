//! Reading the stored tensors that another tensor is made from.

use std::ops::Range;

use attnscope_compute::error::Result;

use crate::data_file::DataFile;
use crate::tensor_info::TensorInfo;
use crate::tensor_view::TensorView;

/// Reads indices `rows` of the first dimension of a stored tensor.
pub(super) fn rows_of(
    files: &[DataFile],
    info: &TensorInfo,
    rows: Range<usize>,
) -> Result<Vec<f32>> {
    Ok(TensorView::new(info, files).widen_rows(rows)?.into_owned())
}

/// Reads all values of a stored tensor.
pub(super) fn all_of(files: &[DataFile], info: &TensorInfo) -> Result<Vec<f32>> {
    Ok(TensorView::new(info, files).widen()?.into_owned())
}
