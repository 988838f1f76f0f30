//! Quantised matrices: packed codes, scales and zero points, matched by the endings of their names and joined into `NAME.weight`.

mod bitsandbytes;
mod integers;
mod module;
mod torchao;

use attnscope_compute::error::{Error, Result};

use self::bitsandbytes::{eight_bit, four_bit};
use self::integers::{awq, compressed, gptq, mlx, scaled};
use self::module::{CombinedMatrix, Module};
pub(super) use self::torchao::Parts;
use self::torchao::torchao;
use super::data_file::DataFile;
use super::quantisation::Quantisation;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Combines the parts of a torchao tensor into one matrix.
///
/// # Errors
/// When the parts do not fit each other.
pub(super) fn of_parts(
    parts: Parts,
    files: &[DataFile],
) -> std::result::Result<TensorInfo, String> {
    torchao::pair(parts, files)?.info()
}

/// Combines packed matrices with their scales and zero points.
///
/// # Errors
/// Names the tensor when one of its parts is missing or does not fit.
pub(super) fn combine(tensors: &mut Tensors, quantisation: Quantisation) -> Result<()> {
    let (end, pair): (&str, Pair) = match quantisation {
        Quantisation::Gptq { .. } => (".qweight", gptq),
        Quantisation::Awq { .. } => (".qweight", awq),
        Quantisation::Mlx { .. } => (".scales", mlx),
        Quantisation::Torchao => (torchao::CODES, torchao),
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

type Pair = fn(&Module<'_>, Quantisation) -> std::result::Result<Option<CombinedMatrix>, String>;

/// Pairs every module that has a tensor whose name ends in `end`.
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
        let used = paired.used.clone();
        let refused = |problem: String| Error::tensor(tensors.file_of(&tensor), &tensor, problem);
        let info = paired.info().map_err(refused)?;
        for end in used {
            tensors.index.remove(&format!("{name}{end}"));
        }
        tensors.index.insert(format!("{name}.weight"), info);
    }
    Ok(())
}
