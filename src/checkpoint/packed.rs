//! Quantised weights stored as two tensors, numbers and scales: paired by the endings of their names.
//!
//! The pair is replaced by one tensor: it is listed, looked up and counted under its own name, with the bytes of both.

use std::collections::BTreeSet;

use attnscope_compute::error::{Error, Result};

use super::dtype::{Dtype, GROUP, GROUP_BYTES};
use super::quantisation::Quantisation;
use super::scales::{Scaled, Scales};
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Endings of the names of MXFP4's numbers and scales.
const BLOCKS: &str = "_blocks";
const GROUP_SCALES: &str = "_scales";
/// Endings of the names of an fp8 tensor's scales: one per block, or one for the whole tensor.
const BLOCK_SCALES: &str = "_scale_inv";
const ONE_SCALE: &str = "_scale";

const U8: Dtype = Dtype::Other("u8", 1);

/// Combines tensors with their scales.
///
/// # Errors
/// Names both tensors when one of them is missing, or their shapes or element types do not match.
pub(super) fn combine(tensors: &mut Tensors, quantisation: Quantisation) -> Result<()> {
    let is_mxfp4 = quantisation == Quantisation::Mxfp4;
    let names: BTreeSet<String> = tensors
        .index
        .iter()
        .filter(|(_, info)| is_mxfp4 || info.dtype == U8)
        .filter_map(|(name, _)| end_off(name, BLOCKS).or(end_off(name, GROUP_SCALES)))
        .map(str::to_owned)
        .collect();
    for name in names {
        let info = mxfp4(tensors, &name)?;
        replace(tensors, &name, info, [BLOCKS, GROUP_SCALES])?;
    }
    let block = match quantisation {
        Quantisation::Fp8 { block } => block,
        _ => Quantisation::USUAL_BLOCK,
    };
    let names: Vec<String> = tensors
        .index
        .keys()
        .filter_map(|name| end_off(name, BLOCK_SCALES))
        .map(str::to_owned)
        .collect();
    for name in names {
        let info = fp8(tensors, &name, block)?;
        replace(tensors, &name, info, ["", BLOCK_SCALES])?;
    }
    let needs_scales = matches!(quantisation, Quantisation::Fp8 { .. });
    refuse_unscaled(tensors, needs_scales)
}

/// Strips an ending, if that leaves a name.
fn end_off<'a>(name: &'a str, end: &str) -> Option<&'a str> {
    name.strip_suffix(end).filter(|name| !name.is_empty())
}

fn replace(tensors: &mut Tensors, name: &str, info: TensorInfo, ends: [&str; 2]) -> Result<()> {
    for end in ends {
        tensors.index.remove(&format!("{name}{end}"));
    }
    if tensors.contains(name) {
        let problem = format!("stands twice, whole and as {name}{BLOCKS}");
        return Err(Error::tensor(tensors.file_of(name), name, problem));
    }
    tensors.index.insert(name.to_owned(), info);
    Ok(())
}

/// Returns a tensor and its partner, both of which must exist.
fn both<'a>(
    tensors: &'a Tensors,
    [numbers, scales]: [&str; 2],
) -> Result<(&'a TensorInfo, &'a TensorInfo)> {
    let missing = |there: &str, missing: &str| {
        let problem = format!("its other half, {missing}, is missing");
        Error::tensor(tensors.file_of(there), there, problem)
    };
    let info_of = |name, there| tensors.info(name).ok_or_else(|| missing(there, name));
    let both = (info_of(numbers, scales)?, info_of(scales, numbers)?);
    for (name, info) in [(numbers, both.0), (scales, both.1)] {
        // A view into a PyTorch storage may have any strides.
        if info.strides.is_some() {
            let problem = "expected row-major elements of a quantised tensor, found another order";
            return Err(Error::tensor(tensors.file_of(name), name, problem));
        }
    }
    Ok(both)
}

/// Combines blocks u8 [slab, output, group, 16] and scales u8 [slab, output, group] to one tensor [slab, input, output].
fn mxfp4(tensors: &Tensors, name: &str) -> Result<TensorInfo> {
    let [blocks_name, scales_name] = [BLOCKS, GROUP_SCALES].map(|end| format!("{name}{end}"));
    let (blocks, scales) = both(tensors, [&blocks_name, &scales_name])?;
    let refuse = |name: &str, problem| Err(Error::tensor(tensors.file_of(name), name, problem));
    for (name, info) in [(&blocks_name, blocks), (&scales_name, scales)] {
        if info.dtype != U8 {
            return refuse(name, format!("expected u8, found {}", info.dtype));
        }
    }
    let [n_slabs, n_out, n_groups, GROUP_BYTES] = blocks.shape[..] else {
        let problem = format!(
            "expected shape [slabs, outputs, groups, {GROUP_BYTES}], found {:?}",
            blocks.shape
        );
        return refuse(&blocks_name, problem);
    };
    let shape = [n_slabs, n_out, n_groups];
    if scales.shape != shape {
        let problem = format!(
            "expected shape {shape:?} beside {blocks_name} {:?}, found {:?}",
            blocks.shape, scales.shape
        );
        return refuse(&scales_name, problem);
    }
    refuse_empty(tensors, &blocks_name, blocks)?;
    Ok(TensorInfo {
        dtype: Dtype::Mxfp4,
        // Cannot overflow: no size is 0, and the file has 16 bytes for every 32 inputs of an output.
        shape: vec![n_slabs, n_groups * GROUP, n_out],
        scales: Some(Scales {
            file_idx: scales.file_idx,
            bytes: scales.bytes.clone(),
            of: Scaled::Groups,
        }),
        ..blocks.clone()
    })
}

/// Combines an fp8 tensor of matrices [.., rows, columns] with its scales, one per block.
fn fp8(tensors: &Tensors, name: &str, block: [usize; 2]) -> Result<TensorInfo> {
    let scales_name = format!("{name}{BLOCK_SCALES}");
    let (numbers, scales) = both(tensors, [name, &scales_name])?;
    let refuse = |name: &str, problem| Err(Error::tensor(tensors.file_of(name), name, problem));
    if !is_fp8(numbers.dtype) {
        let found = numbers.dtype;
        let problem = format!("expected f8_e4m3 or f8_e5m2 beside {scales_name}, found {found}");
        return refuse(name, problem);
    }
    if !matches!(scales.dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
        let problem = format!("expected f32, f16 or bf16, found {}", scales.dtype);
        return refuse(&scales_name, problem);
    }
    let [above @ .., height, width] = &numbers.shape[..] else {
        let problem = format!(
            "expected a matrix beside {scales_name}, found shape {:?}",
            numbers.shape
        );
        return refuse(name, problem);
    };
    refuse_empty(tensors, name, numbers)?;
    let [high, wide] = block;
    let in_blocks = [height.div_ceil(high), width.div_ceil(wide)];
    let expected = [above, &in_blocks].concat();
    if scales.shape != expected {
        let problem = format!(
            "expected shape {expected:?}, blocks of {high} × {wide} of {name} {:?}, found {:?}",
            numbers.shape, scales.shape
        );
        return refuse(&scales_name, problem);
    }
    Ok(TensorInfo {
        scales: Some(Scales {
            file_idx: scales.file_idx,
            bytes: scales.bytes.clone(),
            of: Scaled::Blocks {
                block,
                dtype: scales.dtype,
            },
        }),
        ..numbers.clone()
    })
}

/// Refuses empty shapes: next to a 0, other dimensions could be arbitrarily large without describing any byte.
fn refuse_empty(tensors: &Tensors, name: &str, info: &TensorInfo) -> Result<()> {
    if info.shape.contains(&0) {
        let problem = format!("expected no dimension of 0, found {:?}", info.shape);
        return Err(Error::tensor(tensors.file_of(name), name, problem));
    }
    Ok(())
}

/// Refuses fp8 matrices without scales: their numbers alone are not the values.
fn refuse_unscaled(tensors: &Tensors, needs_scales: bool) -> Result<()> {
    let unscaled = |info: &TensorInfo| is_fp8(info.dtype) && info.scales.is_none();
    for (name, _) in tensors.iter().filter(|(_, info)| unscaled(info)) {
        let one_scale = format!("{name}{ONE_SCALE}");
        let problem = if tensors.contains(&one_scale) {
            format!(
                "one scale for all of it, {one_scale}, cannot be read; readable: {name}{BLOCK_SCALES}, a scale for each block"
            )
        } else if needs_scales {
            format!("its scales, {name}{BLOCK_SCALES}, are missing")
        } else {
            continue;
        };
        return Err(Error::tensor(tensors.file_of(name), name, problem));
    }
    Ok(())
}

fn is_fp8(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F8E4m3 | Dtype::F8E5m2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Stored;

    #[test]
    fn quantised_tensors_that_are_not_row_major_are_refused() {
        let mut tensors = Tensors::default();
        for (name, shape) in [("w_blocks", vec![1, 2, 3, 16]), ("w_scales", vec![1, 2, 3])] {
            let info = TensorInfo {
                dtype: U8,
                strides: (name == "w_scales").then(|| vec![6, 1, 2]),
                shape,
                file_idx: 0,
                bytes: 0..0,
                stored: Stored::AsIs,
                scales: None,
                made: None,
            };
            tensors.index.insert(name.to_owned(), info);
        }
        let error = combine(&mut tensors, Quantisation::Mxfp4).expect_err("refused");
        assert!(error.to_string().contains("w_scales: expected row-major"));
    }
}
