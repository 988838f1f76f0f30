//! Matrices of a few bits and what belongs to each of them, paired by the ends of their names into one tensor `NAME.weight`.

mod bitsandbytes;
mod integers;
mod module;
mod torchao;

use attnscope_compute::error::{Error, Result};

use self::bitsandbytes::{eight_bit, four_bit};
use self::integers::{awq, compressed, gptq, mlx, scaled};
use self::module::{Module, Paired};
pub(super) use self::torchao::Parts;
use self::torchao::torchao;
use super::data_file::DataFile;
use super::quantisation::Quantisation;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// The matrix that parts of a tensor of torchao make.
///
/// # Errors
/// When they do not fit each other.
pub(super) fn of_parts(
    parts: Parts,
    files: &[DataFile],
) -> std::result::Result<TensorInfo, String> {
    torchao::pair(parts, files)?.info()
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
