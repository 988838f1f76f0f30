//! torchao tensors: in safetensors, separately named parts and a class in the header; in a pickle, an object and its attributes.

use serde_json::Value;

use super::module::{CombinedMatrix, Module, ends, expect, matrix};
use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::made::{Layout, Quantised};
use crate::quantisation::Quantisation;
use crate::tensor_info::TensorInfo;
use crate::tensor_view::TensorView;

/// Ending of the part that every class has.
pub(super) const CODES: &str = "._weight_qdata";
const SCALES: &str = "._weight_scale";
const ZEROS: &str = "._weight_zero_point";

/// Readable classes, for messages.
const READABLE: &str = "Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor";

/// Limit on zero points, which are eight-bit codes.
const MOST_ZERO: f64 = 255.0;

const I8: Dtype = Dtype::Other("i8", 1);

pub(super) fn torchao(
    module: &Module<'_>,
    _: Quantisation,
) -> std::result::Result<Option<CombinedMatrix>, String> {
    let said = said_of(module)?;
    let class = said.get("_type").and_then(Value::as_str).unwrap_or("none");
    let is_float = match class {
        "Int8Tensor" | "IntxUnpackedToInt8Tensor" => false,
        "Float8Tensor" => true,
        other => {
            return Err(format!(
                "torchao's {other} cannot be read; readable: {READABLE}"
            ));
        }
    };
    let block = said.pointer("/_data/block_size");
    let block: Vec<u64> = block
        .and_then(Value::as_array)
        .map(|sizes| sizes.iter().filter_map(Value::as_u64).collect())
        .unwrap_or_default();
    let rounds_to = said.pointer("/_data/dtype/_data").and_then(Value::as_str);
    let parts = Parts {
        is_float,
        rounds_to: rounds_to.unwrap_or("none").to_owned(),
        block,
        codes: module.need(CODES)?,
        scales: module.need(SCALES)?,
        zeros: module.get(ZEROS),
    };
    pair(parts, module.files()).map(Some)
}

/// The parts of a torchao tensor.
pub(crate) struct Parts {
    /// Whether the codes are eight-bit floats.
    pub is_float: bool,
    /// Type to which the library rounds dequantised values.
    pub rounds_to: String,
    /// Block of rows and columns that shares a scale.
    pub block: Vec<u64>,
    pub codes: TensorInfo,
    pub scales: TensorInfo,
    /// Zero points, one for each scale.
    pub zeros: Option<TensorInfo>,
}

pub(super) fn pair(
    parts: Parts,
    files: &[DataFile],
) -> std::result::Result<CombinedMatrix, String> {
    let Parts {
        is_float,
        rounds_to,
        block,
        codes,
        scales,
        mut zeros,
    } = parts;
    let [n_out, n_in] = matrix(&codes, "numbers of eight bits")?;
    let fits = if is_float {
        matches!(codes.dtype, Dtype::F8E4m3 | Dtype::F8E5m2)
    } else {
        codes.dtype == I8
    };
    let (group, is_of_all) = match block[..] {
        [1, group] if group > 0 && (n_in as u64).is_multiple_of(group) => (group as usize, false),
        [rows, columns] if [rows, columns] == [n_out as u64, n_in as u64] => (n_in, true),
        _ => {
            return Err(format!(
                "blocks {block:?} of a matrix [{n_out}, {n_in}] cannot be read"
            ));
        }
    };
    let n_groups = if is_of_all { 1 } else { n_out * (n_in / group) };
    let is_grouped_float = is_float && group != n_in;
    expect(
        fits && scales.dtype.is_float() && scales.n_elements() == n_groups && !is_grouped_float,
        || {
            format!(
                "expected {n_groups} scales, found shape {:?} of {}",
                scales.shape, codes.dtype
            )
        },
    )?;
    if let Some(stored) = &zeros {
        let is_whole = matches!(
            stored.dtype,
            I8 | Dtype::Other("i32", 4) | Dtype::Other("i64", 8)
        );
        expect(
            (is_whole || stored.dtype.is_float())
                && stored.n_elements() == scales.n_elements()
                && !is_float,
            || {
                format!(
                    "expected zero points of shape {:?}, found {:?}",
                    scales.shape, stored.shape
                )
            },
        )?;
        let view = TensorView::new(stored, files);
        let numbers: Vec<f64> = if is_whole {
            let numbers = view.whole_numbers().map_err(|e| e.to_string())?;
            numbers.unwrap_or_default()
        } else {
            let numbers = view.widen().map_err(|e| e.to_string())?;
            numbers.iter().map(|number| f64::from(*number)).collect()
        };
        let is_small = |number: &f64| number.fract() == 0.0 && number.abs() <= MOST_ZERO;
        expect(numbers.iter().all(is_small), || {
            format!("expected zero points that are whole numbers of at most {MOST_ZERO}")
        })?;
        if numbers.iter().all(|number| *number == 0.0) {
            zeros = None;
        } else {
            expect(!is_of_all || n_out == 1, || {
                "one zero point for a matrix cannot be read".to_owned()
            })?;
        }
    }
    let rounds_to = match rounds_to.as_str() {
        "bfloat16" => Dtype::Bf16,
        "float16" => Dtype::F16,
        "float32" => Dtype::F32,
        other => return Err(format!("values of type {other:?} cannot be read")),
    };
    Ok(CombinedMatrix {
        name: if is_float { "fp8" } else { "int8" },
        shape: vec![n_out, n_in],
        used: ends(&[CODES, SCALES, ZEROS]),
        quantised: Quantised {
            layout: if is_float {
                Layout::Float
            } else {
                Layout::Int8
            },
            rounds_to,
            bits: 8,
            codes,
            scales,
            zeros,
            groups: None,
            group,
        },
    })
}

/// Parses the description of a module's weight in the file's header.
fn said_of(module: &Module<'_>) -> std::result::Result<Value, String> {
    let name = format!("{}.weight", module.name);
    let all = module.tensors.metadata();
    let text = all.iter().find_map(|said| said.get(&name));
    let text = text.ok_or_else(|| format!("the header of the file says nothing of {name}"))?;
    serde_json::from_str(text).map_err(|e| format!("what the header says of {name} ({e})"))
}
