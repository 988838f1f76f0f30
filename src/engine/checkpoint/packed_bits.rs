//! Matrices of a few bits and what belongs to each of them, paired by the ends of their names into one tensor `NAME.weight`.

use std::sync::Arc;

use serde_json::Value;

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::made::{Layout, Made, Nested, Quantised};
use super::quantisation::Quantisation;
use super::stored::Stored;
use super::tensor_view::TensorView;
use super::tensors::{TensorInfo, Tensors};
use crate::error::{Error, Result};

const I8: Dtype = Dtype::Other("i8", 1);
const U8: Dtype = Dtype::Other("u8", 1);
/// Bytes of a description of bitsandbytes at most.
const LONGEST_STATE: usize = 1 << 16;

/// What one module's tensors become.
struct Paired {
    name: &'static str,
    shape: Vec<usize>,
    quantised: Quantised,
    /// Ends of the names of all that was used.
    used: Vec<String>,
}

/// Puts packed matrices together with what belongs to them.
///
/// # Errors
/// Names the tensor when something that belongs to it is missing, or does not fit it.
pub(super) fn combine(tensors: &mut Tensors, quantisation: Quantisation) -> Result<()> {
    let (end, pair): (&str, Pair) = match quantisation {
        Quantisation::Gptq { .. } => (".qweight", gptq),
        Quantisation::Awq { .. } => (".qweight", awq),
        Quantisation::Mlx { .. } => (".scales", mlx),
        Quantisation::CompressedTensors => {
            each(tensors, ".weight_packed", quantisation, compressed)?;
            (".weight_scale", scaled)
        }
        Quantisation::Bitsandbytes => {
            each(tensors, ".weight.absmax", quantisation, four_bit)?;
            (".SCB", eight_bit)
        }
        Quantisation::Fp8 { .. } => (".weight_scale", scaled),
        Quantisation::None | Quantisation::Mxfp4 => return Ok(()),
    };
    each(tensors, end, quantisation, pair)
}

type Pair = fn(&Module<'_>, Quantisation) -> std::result::Result<Option<Paired>, String>;

/// Pairs every module that has a tensor whose name ends so.
fn each(tensors: &mut Tensors, end: &str, quantisation: Quantisation, pair: Pair) -> Result<()> {
    let modules: Vec<String> = tensors
        .index
        .keys()
        .filter_map(|name| name.strip_suffix(end).filter(|name| !name.is_empty()))
        .map(str::to_owned)
        .collect();
    for name in modules {
        let module = Module {
            tensors,
            name: &name,
        };
        let tensor = format!("{name}{end}");
        let refused = |problem: String| Error::tensor(tensors.file_of(&tensor), &tensor, problem);
        let Some(paired) = pair(&module, quantisation).map_err(refused)? else {
            continue;
        };
        let codes = &paired.quantised.codes;
        let refused = |problem: String| Error::tensor(tensors.file_of(&tensor), &tensor, problem);
        if paired
            .quantised
            .parts()
            .iter()
            .any(|part| part.strides.is_some())
        {
            return Err(refused(
                "expected row-major elements of a quantised tensor, found another order".to_owned(),
            ));
        }
        if paired.shape.contains(&0) || super::shape::n_elements(&paired.shape).is_none() {
            return Err(refused(format!(
                "expected a matrix, found shape {:?}",
                paired.shape
            )));
        }
        let info = TensorInfo {
            dtype: Dtype::Packed(paired.name),
            shape: paired.shape,
            strides: None,
            file_idx: codes.file_idx,
            bytes: codes.bytes.clone(),
            stored: Stored::AsIs,
            scales: None,
            made: Some(Arc::new(Made::Quantised(Box::new(paired.quantised)))),
        };
        for end in paired.used {
            tensors.index.remove(&format!("{name}{end}"));
        }
        tensors.index.insert(format!("{name}.weight"), info);
    }
    Ok(())
}

/// The tensors of one module.
struct Module<'a> {
    tensors: &'a Tensors,
    name: &'a str,
}

impl Module<'_> {
    fn get(&self, end: &str) -> Option<TensorInfo> {
        self.tensors.info(&format!("{}{end}", self.name)).cloned()
    }

    fn need(&self, end: &str) -> std::result::Result<TensorInfo, String> {
        self.get(end)
            .ok_or_else(|| format!("what belongs to it, {}{end}, is missing", self.name))
    }

    fn files(&self) -> &[DataFile] {
        &self.tensors.files
    }
}

fn ends(ends: &[&str]) -> Vec<String> {
    ends.iter().map(|end| (*end).to_owned()).collect()
}

fn matrix(info: &TensorInfo, what: &str) -> std::result::Result<[usize; 2], String> {
    match info.shape[..] {
        [n, m] if n > 0 && m > 0 => Ok([n, m]),
        _ => Err(format!(
            "expected a matrix of {what}, found shape {:?}",
            info.shape
        )),
    }
}

fn expect(is_so: bool, problem: impl FnOnce() -> String) -> std::result::Result<(), String> {
    if is_so { Ok(()) } else { Err(problem()) }
}

fn is_words(info: &TensorInfo) -> bool {
    matches!(info.dtype, Dtype::Other("i32" | "u32", 4))
}

/// Bits of each number where so many words of 32 hold so many of them.
fn bits_of(n_words: usize, n_numbers: usize) -> std::result::Result<u32, String> {
    let n_bits = n_words.checked_mul(32).filter(|_| n_numbers > 0);
    let bits = n_bits
        .filter(|n| n.is_multiple_of(n_numbers))
        .map(|n| n / n_numbers);
    match bits {
        Some(bits @ 1..=8) => Ok(bits as u32),
        _ => Err(format!(
            "{n_words} words of 32 bits do not hold {n_numbers} numbers of up to 8 bits"
        )),
    }
}

fn gptq(
    module: &Module<'_>,
    quantisation: Quantisation,
) -> std::result::Result<Option<Paired>, String> {
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
    Ok(Some(Paired {
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

/// Refuses groups beyond those that have a scale.
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

fn awq(
    module: &Module<'_>,
    quantisation: Quantisation,
) -> std::result::Result<Option<Paired>, String> {
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
    Ok(Some(Paired {
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

fn mlx(
    module: &Module<'_>,
    quantisation: Quantisation,
) -> std::result::Result<Option<Paired>, String> {
    let Quantisation::Mlx { group, .. } = quantisation else {
        return Ok(None);
    };
    let (codes, scales) = (module.need(".weight")?, module.need(".scales")?);
    let zeros = module.need(".biases")?;
    let [n_out, n_words] = matrix(&codes, "packed numbers")?;
    let [of_scales, n_groups] = matrix(&scales, "scales")?;
    // Layers of a model may have groups of their own; bits follow from the sizes.
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
    Ok(Some(Paired {
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

fn compressed(module: &Module<'_>, _: Quantisation) -> std::result::Result<Option<Paired>, String> {
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
    // The last word of a row may hold fewer numbers.
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
    Ok(Some(Paired {
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

/// Numbers of eight bits, whole or floating point, with a scale for all of them, for each row or for groups of a row.
fn scaled(module: &Module<'_>, _: Quantisation) -> std::result::Result<Option<Paired>, String> {
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
    Ok(Some(Paired {
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

fn four_bit(module: &Module<'_>, _: Quantisation) -> std::result::Result<Option<Paired>, String> {
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
    let n = super::shape::n_elements(&shape).ok_or("more elements than can be counted")?;
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
            Some(Nested {
                scales: of_scales,
                values: table,
                block,
                offset,
            })
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
    Ok(Some(Paired {
        name,
        shape,
        used,
        quantised: Quantised {
            layout: Layout::Table { values, nested },
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

fn eight_bit(module: &Module<'_>, _: Quantisation) -> std::result::Result<Option<Paired>, String> {
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
    Ok(Some(Paired {
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
