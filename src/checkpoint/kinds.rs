//! Formats of weight files, by name or content; and explanations of unsupported formats that say what to do.

use std::path::Path;

use attnscope_compute::error::{Error, Result};

use super::data_file::beginning;
use super::pytorch::METADATA;
use super::stand_ins::refuse_pointer;
use super::{gguf, llama2c};

/// Format of stored weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Safetensors,
    SafetensorsIndex,
    Pytorch,
    PytorchIndex,
    /// The index of a distributed checkpoint.
    Distributed,
    Gguf,
    Npz,
    /// A Flax tree of arrays.
    Flax,
    /// An export by llama2.c.
    Llama2c,
}

/// First bytes of an HDF5 file, and what to do about such a file.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
const IS_HDF5: &str = "holds TensorFlow's weights as HDF5, which are not read; save the model as safetensors \
     (transformers 4: AutoModel.from_pretrained(DIR, from_tf=True).save_pretrained(OUT))";

/// Files that only Orbax writes, and what to do about them.
const ORBAX: [&str; 3] = ["_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"];
const IS_ORBAX: &str = "is a checkpoint of Orbax (JAX), which is not read; restore it and save its arrays with safetensors.flax.save_file, or \
     as flax_model.msgpack with flax.serialization.to_bytes";

/// Extensions of model files that cannot be read, and what to do about each.
const OTHERS: &[(&[&str], &str)] = &[
    (
        &[".pt2"],
        "is an archive of torch.export, which holds a program; save the module's state_dict() with torch.save",
    ),
    (
        &[".distcp"],
        "is a part of a checkpoint of torch.distributed, whose index .metadata is missing: it was not saved whole, or not copied whole",
    ),
    (
        &[".onnx"],
        "is an ONNX graph; open the checkpoint that it was exported from",
    ),
    (&[".h5", ".hdf5", ".h5.index.json"], IS_HDF5),
    (
        &[".keras"],
        "is an archive of Keras 3, which is not read; save the model as safetensors under the names of its PyTorch class",
    ),
    (
        &[".ckpt.index", ".ckpt.meta", ".data-00000-of-00001"],
        "is a checkpoint of TensorFlow; convert it to PyTorch with transformers' conversion script",
    ),
    (
        &[".tflite"],
        "is a model of TensorFlow Lite; open the checkpoint that it was converted from",
    ),
    (
        &[".nemo"],
        "is an archive of NeMo; convert it to Hugging Face's layout with NeMo's export script",
    ),
];

impl Format {
    /// Determines the format by the file's name or content.
    ///
    /// # Errors
    /// Says what the file is, if it holds no readable weights.
    pub fn of(file: &Path) -> Result<Self> {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        refuse_pointer(file)?;
        if ends(&[".safetensors.index.json"]) {
            return Ok(Self::SafetensorsIndex);
        }
        if ends(&[".bin.index.json"]) {
            return Ok(Self::PytorchIndex);
        }
        if name == METADATA {
            return Ok(Self::Distributed);
        }
        if let Some((_, problem)) = OTHERS.iter().find(|(endings, _)| ends(endings)) {
            return Err(Error::file(file, *problem));
        }
        if ends(&[".safetensors"]) {
            Ok(Self::Safetensors)
        } else if ends(&[".npz"]) {
            Ok(Self::Npz)
        } else if ends(&[".msgpack"]) {
            Ok(Self::Flax)
        } else if beginning(file, HDF5.len()) == HDF5 {
            Err(Error::file(file, IS_HDF5))
        } else if ends(&[".bin"]) && llama2c::Header::of(file).is_some() {
            Ok(Self::Llama2c)
        } else if ends(&[
            ".bin", ".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar", ".pkl",
        ]) {
            Ok(Self::Pytorch)
        } else if gguf::is_gguf(file) {
            Ok(Self::Gguf)
        } else if begins_as_pytorch(file) {
            Ok(Self::Pytorch)
        } else if begins_as_safetensors(file) {
            Ok(Self::Safetensors)
        } else {
            let problem = "expected a checkpoint directory or a weight file (.safetensors, .bin, .pt, .pth, .ckpt, .gguf, .npz, .msgpack), \
                           found a file of another kind";
            Err(Error::file(file, problem))
        }
    }
}

/// Whether a file without extension is a zip archive, as `torch.save` writes it.
fn begins_as_pytorch(file: &Path) -> bool {
    file.extension().is_none() && beginning(file, 4) == b"PK\x03\x04"
}

/// Whether a file without extension, as in a cache, begins with a header length and the header's `{`.
fn begins_as_safetensors(file: &Path) -> bool {
    let bytes = beginning(file, 9);
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return false;
    };
    file.extension().is_none() && u64::from_le_bytes(*length) < 100_000_000 && rest == b"{"
}

/// Explains what an unreadable directory holds and what to do about it; `None` if it is not recognised.
pub fn other_directory(directory: &Path) -> Option<String> {
    let names: Vec<String> = std::fs::read_dir(directory)
        .ok()?
        .take(10_000)
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    let any = |test: &dyn Fn(&str) -> bool| names.iter().any(|name| test(name));
    let is_megatron = any(&|name| name == "latest_checkpointed_iteration.txt")
        || (any(&|name| name.starts_with("mp_rank_") || name.starts_with("tp_rank_"))
            && names
                .iter()
                .any(|name| directory.join(name).join("model_optim_rng.pt").is_file()));
    if is_megatron {
        return Some(
            "is a checkpoint of Megatron without a model_optim_rng.pt of a rank; save it with --ckpt-format torch, or \
             convert it with Megatron's tools/checkpoint/convert.py (saver hf)"
                .to_owned(),
        );
    }
    if any(&|name| name.ends_with("_optim_states.pt"))
        && !any(&|name| name.ends_with("model_states.pt"))
    {
        return Some(
            "holds optimiser states of DeepSpeed alone; python zero_to_fp32.py makes weights of them".to_owned(),
        );
    }
    let is_orbax = |directory: &Path| ORBAX.iter().any(|name| directory.join(name).exists());
    if is_orbax(directory) || names.iter().any(|name| is_orbax(&directory.join(name))) {
        return Some(IS_ORBAX.to_owned());
    }
    let foreign = names.iter().find_map(|name| {
        let lower = name.to_lowercase();
        let (_, problem) = OTHERS
            .iter()
            .find(|(endings, _)| endings.iter().any(|ending| lower.ends_with(ending)))?;
        Some(format!("{name} {problem}"))
    });
    foreign.map(|problem| format!("holds no weights that can be read: {problem}"))
}
