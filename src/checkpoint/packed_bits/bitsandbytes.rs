//! bitsandbytes weights: four bits by a lookup table, with scales that may be quantised too, and eight bits with a scale per row.

use serde_json::Value;

use super::module::{CombinedMatrix, Module, ends, expect, matrix};
use crate::dtype::Dtype;
use crate::made::{Layout, Nested, Quantised};
use crate::quantisation::Quantisation;
use crate::tensor_view::TensorView;

const I8: Dtype = Dtype::Other("i8", 1);
const U8: Dtype = Dtype::Other("u8", 1);
/// Limit on the bytes of a `quant_state` description.
const LONGEST_STATE: usize = 1 << 16;

pub(super) fn four_bit(
    module: &Module<'_>,
    _: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let (codes, scales) = (module.need(".weight")?, module.need(".weight.absmax")?);
    let values = module.need(".weight.quant_map")?;
    let (end, state) = ["nf4", "fp4"]
        .iter()
        .find_map(|kind| {
            let end = format!(".weight.quant_state.bitsandbytes__{kind}");
            module.get(&end).map(|info| (end, info))
        })
        .ok_or("its description, weight.quant_state.bitsandbytes__nf4 or __fp4, is missing")?;
    if state.n_elements() > LONGEST_STATE || state.dtype != U8 {
        return Err("expected a description of a few bytes".to_owned());
    }
    let bytes = TensorView::new(&state, module.files()).stored_bytes(0..state.n_elements());
    let said: Value = serde_json::from_slice(&bytes.map_err(|e| e.to_string())?)
        .map_err(|e| format!("its description is not valid JSON ({e})"))?;
    let size = |key: &str| {
        let size = said
            .get(key)
            .and_then(Value::as_u64)
            .filter(|n| (1..=1 << 26).contains(n));
        size.map(|n| n as usize)
            .ok_or_else(|| format!("its description has no {key}"))
    };
    let group = size("blocksize")?;
    let shape: Option<Vec<usize>> = said
        .get("shape")
        .and_then(Value::as_array)
        .and_then(|list| {
            list.iter()
                .map(|n| n.as_u64().map(|n| n as usize))
                .collect()
        });
    let shape = shape
        .filter(|shape| shape.len() == 2)
        .ok_or("its description has no shape of a matrix")?;
    let n = crate::shape::n_elements(&shape).ok_or("more elements than can be counted")?;
    let n_blocks = n.div_ceil(group);
    let rounds_to = match said.get("dtype").and_then(Value::as_str) {
        Some("float16") => Dtype::F16,
        Some("bfloat16") => Dtype::Bf16,
        _ => Dtype::F32,
    };
    let fits = codes.n_elements() == n.div_ceil(2)
        && codes.dtype == U8
        && scales.n_elements() == n_blocks
        && values.n_elements() == 16;
    expect(fits && values.dtype == Dtype::F32, || {
        format!(
            "expected {} bytes and {n_blocks} scales for shape {shape:?}, found {:?} and {:?}",
            n.div_ceil(2),
            codes.shape,
            scales.shape
        )
    })?;
    let nested = match module.get(".weight.nested_absmax") {
        None => {
            expect(scales.dtype == Dtype::F32, || {
                format!("expected f32 scales, found {}", scales.dtype)
            })?;
            None
        }
        Some(of_scales) => {
            let block = size("nested_blocksize")?;
            let table = module.need(".weight.nested_quant_map")?;
            let offset = said
                .get("nested_offset")
                .and_then(Value::as_f64)
                .unwrap_or(0.0) as f32;
            let fits = scales.dtype == U8
                && table.n_elements() == 256
                && of_scales.n_elements() == n_blocks.div_ceil(block);
            expect(
                fits && table.dtype == Dtype::F32 && of_scales.dtype == Dtype::F32,
                || {
                    "expected scales of eight bits with a table of 256 and a scale for each block"
                        .to_owned()
                },
            )?;
            Some(Box::new(Nested {
                scales: of_scales,
                values: table,
                block,
                offset,
            }))
        }
    };
    let mut used = ends(&[
        ".weight",
        ".weight.absmax",
        ".weight.quant_map",
        ".weight.nested_absmax",
        ".weight.nested_quant_map",
    ]);
    let name = if end.ends_with("nf4") { "nf4" } else { "fp4" };
    used.push(end);
    Ok(Some(CombinedMatrix {
        name,
        shape,
        used,
        quantised: Quantised {
            layout: Layout::Table {
                values: Box::new(values),
                nested,
            },
            codes,
            scales,
            zeros: None,
            groups: None,
            group,
            bits: 4,
            rounds_to,
        },
    }))
}

pub(super) fn eight_bit(
    module: &Module<'_>,
    _: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let (codes, scales) = (module.need(".weight")?, module.need(".SCB")?);
    let [n_out, n_in] = matrix(&codes, "numbers of eight bits")?;
    expect(
        codes.dtype == I8 && scales.n_elements() == n_out && scales.dtype.is_float(),
        || {
            format!(
                "expected i8 and {n_out} scales, found {} and {:?}",
                codes.dtype, scales.shape
            )
        },
    )?;
    Ok(Some(CombinedMatrix {
        name: "int8",
        shape: vec![n_out, n_in],
        used: ends(&[".weight", ".SCB", ".weight_format"]),
        quantised: Quantised {
            layout: Layout::VectorWise,
            codes,
            scales,
            zeros: None,
            groups: None,
            group: n_in,
            bits: 8,
            rounds_to: Dtype::F32,
        },
    }))
}
