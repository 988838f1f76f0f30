//! Integers and small floats of GPTQ, AWQ, MLX and compressed-tensors.

use super::module::{CombinedMatrix, Module, bits_of, ends, expect, is_words, matrix};
use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::made::{Layout, Quantised};
use crate::quantisation::Quantisation;
use crate::tensor_info::TensorInfo;
use crate::tensor_view::TensorView;

const I8: Dtype = Dtype::Other("i8", 1);

pub(super) fn gptq(
    module: &Module<'_>,
    quantisation: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let Quantisation::Gptq {
        bits,
        group,
        zeros_less,
    } = quantisation
    else {
        return Ok(None);
    };
    let (codes, scales) = (module.need(".qweight")?, module.need(".scales")?);
    let (zeros, groups) = (module.need(".qzeros")?, module.get(".g_idx"));
    let [n_words, n_out] = matrix(&codes, "packed numbers")?;
    let [n_groups, of_scales] = matrix(&scales, "scales")?;
    let n_in = match &groups {
        Some(groups) => groups.n_elements(),
        None => n_words * 32 / bits as usize,
    };
    let own_bits = bits_of(n_words, n_in)?;
    let [of_zeros, n_zero_words] = matrix(&zeros, "packed zeros")?;
    let fits =
        of_scales == n_out && of_zeros == n_groups && bits_of(n_zero_words, n_out)? == own_bits;
    expect(
        fits && is_words(&codes) && is_words(&zeros) && scales.dtype.is_float(),
        || {
            format!(
                "expected scales [groups, {n_out}] and zeros in as many bits, found {:?} and {:?} beside {:?}",
                scales.shape, zeros.shape, codes.shape
            )
        },
    )?;
    let group = if group == 0 { n_in } else { group };
    if let Some(groups) = &groups {
        check_groups(module.files(), groups, n_groups)?;
    } else {
        expect(n_in.div_ceil(group) == n_groups, || {
            format!(
                "expected {} groups of {group} inputs, found {n_groups}",
                n_in.div_ceil(group)
            )
        })?;
    }
    Ok(Some(CombinedMatrix {
        name: "gptq",
        shape: vec![n_out, n_in],
        used: ends(&[".qweight", ".scales", ".qzeros", ".g_idx"]),
        quantised: Quantised {
            layout: Layout::Gptq { zeros_less },
            rounds_to: scales.dtype,
            bits: own_bits,
            codes,
            scales,
            zeros: Some(zeros),
            groups,
            group,
        },
    }))
}

/// Refuses group numbers that have no scale.
fn check_groups(
    files: &[DataFile],
    groups: &TensorInfo,
    n_groups: usize,
) -> std::result::Result<(), String> {
    let numbers = TensorView::new(groups, files).whole_numbers();
    let numbers = numbers.map_err(|e| e.to_string())?.unwrap_or_default();
    let is_group = |number: &f64| *number >= 0.0 && *number < n_groups as f64;
    expect(
        is_words(groups) && numbers.len() == groups.n_elements() && numbers.iter().all(is_group),
        || format!("expected groups below {n_groups} for each input"),
    )
}

pub(super) fn awq(
    module: &Module<'_>,
    quantisation: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let Quantisation::Awq { group } = quantisation else {
        return Ok(None);
    };
    let (codes, scales, zeros) = (
        module.need(".qweight")?,
        module.need(".scales")?,
        module.need(".qzeros")?,
    );
    let [n_in, n_words] = matrix(&codes, "packed numbers")?;
    let n_out = n_words * 8;
    let group = if group == 0 { n_in } else { group };
    let n_groups = n_in.div_ceil(group);
    let fits = scales.shape == [n_groups, n_out] && zeros.shape == [n_groups, n_words];
    expect(
        fits && is_words(&codes) && is_words(&zeros) && scales.dtype.is_float(),
        || {
            format!(
                "expected scales {:?} and zeros {:?}, found {:?} and {:?}",
                [n_groups, n_out],
                [n_groups, n_words],
                scales.shape,
                zeros.shape
            )
        },
    )?;
    Ok(Some(CombinedMatrix {
        name: "awq",
        shape: vec![n_out, n_in],
        used: ends(&[".qweight", ".scales", ".qzeros"]),
        quantised: Quantised {
            layout: Layout::Awq,
            rounds_to: scales.dtype,
            bits: 4,
            codes,
            scales,
            zeros: Some(zeros),
            groups: None,
            group,
        },
    }))
}

pub(super) fn mlx(
    module: &Module<'_>,
    quantisation: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let Quantisation::Mlx { group, .. } = quantisation else {
        return Ok(None);
    };
    let (codes, scales) = (module.need(".weight")?, module.need(".scales")?);
    let zeros = module.need(".biases")?;
    let [n_out, n_words] = matrix(&codes, "packed numbers")?;
    let [of_scales, n_groups] = matrix(&scales, "scales")?;
    // Layers may differ in group size; the number of bits follows from the sizes.
    let n_in = n_groups
        .checked_mul(group)
        .ok_or("more inputs than can be counted")?;
    let bits = bits_of(n_words, n_in)?;
    let fits = of_scales == n_out && zeros.shape == scales.shape;
    expect(
        fits && is_words(&codes) && scales.dtype.is_float() && zeros.dtype.is_float(),
        || {
            format!(
                "expected scales and biases of one shape, found {:?} and {:?}",
                scales.shape, zeros.shape
            )
        },
    )?;
    Ok(Some(CombinedMatrix {
        name: "mlx",
        shape: vec![n_out, n_in],
        used: ends(&[".weight", ".scales", ".biases"]),
        quantised: Quantised {
            layout: Layout::Mlx,
            rounds_to: scales.dtype,
            bits,
            codes,
            scales,
            zeros: Some(zeros),
            groups: None,
            group,
        },
    }))
}

pub(super) fn compressed(
    module: &Module<'_>,
    _: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let (codes, scales) = (
        module.need(".weight_packed")?,
        module.need(".weight_scale")?,
    );
    let (zeros, groups) = (
        module.get(".weight_zero_point"),
        module.get(".weight_g_idx"),
    );
    if module.get(".weight_global_scale").is_some() {
        return Err(
            "numbers of four bits with a scale of scales (nvfp4) cannot be read".to_owned(),
        );
    }
    let [n_out, n_words] = matrix(&codes, "packed numbers")?;
    let stated = module.need(".weight_shape")?;
    let stated = TensorView::new(&stated, module.files()).whole_numbers();
    let stated = stated.map_err(|e| e.to_string())?.unwrap_or_default();
    let n_in = match stated[..] {
        [rows, columns] if rows == n_out as f64 && columns >= 1.0 => columns as usize,
        _ => {
            return Err(format!(
                "expected weight_shape [{n_out}, inputs], found {stated:?}"
            ));
        }
    };
    // The last word of a row may be partly filled.
    let bits = [4u32, 8, 2, 3, 5, 6, 7]
        .into_iter()
        .find(|bits| n_in.div_ceil(32 / *bits as usize) == n_words);
    let bits = bits.filter(|bits| 32 % bits == 0);
    let bits = bits.ok_or_else(|| {
        format!("{n_words} words of 32 bits do not hold {n_in} numbers of 2, 4 or 8 bits")
    })?;
    let [of_scales, n_groups] = matrix(&scales, "scales")?;
    let group = n_in.div_ceil(n_groups);
    expect(
        (of_scales == n_out || of_scales == 1) && is_words(&codes) && scales.dtype.is_float(),
        || {
            format!(
                "expected scales [{n_out}, groups], found {:?}",
                scales.shape
            )
        },
    )?;
    if let Some(zeros) = &zeros {
        let per_word = 32 / bits as usize;
        let fits =
            zeros.shape == scales.shape || zeros.shape == [n_out.div_ceil(per_word), n_groups];
        expect(
            fits && matches!(zeros.dtype, Dtype::Other("i8", 1) | Dtype::Other("i32", 4)),
            || {
                format!(
                    "expected zero points for scales {:?}, found {:?}",
                    scales.shape, zeros.shape
                )
            },
        )?;
    }
    if let Some(groups) = &groups {
        check_groups(module.files(), groups, n_groups)?;
    }
    Ok(Some(CombinedMatrix {
        name: "int-packed",
        shape: vec![n_out, n_in],
        used: ends(&[
            ".weight_packed",
            ".weight_scale",
            ".weight_shape",
            ".weight_zero_point",
            ".weight_g_idx",
        ]),
        quantised: Quantised {
            layout: Layout::Compressed,
            rounds_to: scales.dtype,
            bits,
            codes,
            scales,
            zeros,
            groups,
            group,
        },
    }))
}

/// Eight-bit integers or floats with one scale, or a scale per row or per group.
pub(super) fn scaled(
    module: &Module<'_>,
    _: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let (Some(codes), scales) = (module.get(".weight"), module.need(".weight_scale")?) else {
        return Ok(None);
    };
    let is_float = matches!(codes.dtype, Dtype::F8E4m3 | Dtype::F8E5m2);
    if !is_float && codes.dtype != I8 {
        return Ok(None);
    }
    let [n_out, n_in] = matrix(&codes, "numbers of eight bits")?;
    let n_scales = scales.n_elements();
    let [of_scales, n_groups] = match scales.shape[..] {
        [rows, columns] => [rows, columns],
        _ => [n_scales, 1],
    };
    let is_of_rows = n_groups == 1 && (of_scales == n_out || n_scales == 1);
    let is_grouped =
        !is_float && of_scales == n_out && n_groups > 0 && n_in.is_multiple_of(n_groups);
    expect(
        (is_of_rows || is_grouped) && scales.dtype.is_float(),
        || {
            format!(
                "expected one scale, or [{n_out}, 1], found {:?}",
                scales.shape
            )
        },
    )?;
    let zeros = module
        .get(".weight_zero_point")
        .filter(|zeros| zeros.dtype == I8);
    if let Some(zeros) = &zeros {
        expect(zeros.shape == scales.shape, || {
            format!(
                "expected zero points of shape {:?}, found {:?}",
                scales.shape, zeros.shape
            )
        })?;
    }
    Ok(Some(CombinedMatrix {
        name: if is_float { "fp8" } else { "int8" },
        shape: vec![n_out, n_in],
        used: ends(&[
            ".weight",
            ".weight_scale",
            ".weight_zero_point",
            ".input_scale",
            ".input_zero_point",
        ]),
        quantised: Quantised {
            layout: if is_float {
                Layout::Float
            } else {
                Layout::Int8
            },
            rounds_to: scales.dtype,
            bits: 8,
            codes,
            scales,
            zeros: zeros.filter(|_| !is_float),
            groups: None,
            group: n_in / n_groups.max(1),
        },
    }))
}
