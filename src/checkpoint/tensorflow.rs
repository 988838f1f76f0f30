//! Weights of transformers' TensorFlow classes (`tf_model.h5`, or safetensors marked as TensorFlow's): each variable becomes a
//! tensor with the name and the order of axes of PyTorch's class.
//!
//! The rules are those of `convert_tf_weight_name_to_pt_weight_name` in `modeling_tf_pytorch_utils.py` of transformers 4.

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;
use super::hdf5;
use super::stored::Stored;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Prefix of the attribute in which a layer lists the names of its variables.
const LISTED: &str = "weight_names";
/// Metadata of safetensors that TensorFlow's classes wrote.
const FORMAT: (&str, &str) = ("format", "tf");

/// Adds the tensors of an HDF5 file.
///
/// # Errors
/// When the file cannot be read, or has no variables of transformers' classes.
pub fn add(tensors: &mut Tensors, file: DataFile) -> Result<()> {
    let arrays = hdf5::arrays(&file, LISTED)?;
    let path = file.path();
    let is_numbered = |name: &str| name.contains("/vars/") || name.starts_with("vars/");
    if arrays.is_empty() || arrays.iter().any(|array| is_numbered(&array.path)) {
        let problem = if arrays.is_empty() {
            "holds no arrays; expected weights of TensorFlow"
        } else {
            "holds weights as Keras 3 numbers them, without names; expected the tf_model.h5 of save_pretrained"
        };
        return Err(Error::file(path, problem));
    }
    let file_idx = tensors.files.len();
    for array in arrays {
        // A layer's list has full names; names of objects without a list lack the model's name.
        let name = &array.path[array.listed..];
        let has_model = array.listed > 0 || keeps_model(name);
        let info = TensorInfo {
            dtype: array.dtype,
            shape: array.shape,
            strides: None,
            file_idx,
            bytes: array.bytes,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        let (name, info) = of_pytorch(name, has_model, info);
        // Shared variables are stored with each layer that uses them.
        if let Some(other) = tensors.index.get(&name) {
            if other.shape != info.shape {
                let problem = format!("stands twice, as {:?} and {:?}", other.shape, info.shape);
                return Err(Error::tensor(path, name, problem));
            }
            continue;
        }
        tensors.index.insert(name, info);
    }
    tensors.files.push(file);
    Ok(())
}

/// Converts a name in an index of shards to the tensor's name.
pub fn name_in_index(name: &str) -> String {
    name_of(name, true)
}

/// Renames and reorders to PyTorch's conventions the tensors of safetensors that TensorFlow's classes wrote; leaves all others.
///
/// # Errors
/// Names the tensor when two would then have the same name.
pub fn rename(tensors: &mut Tensors) -> Result<()> {
    let says_so = |said: &std::collections::BTreeMap<String, String>| {
        said.get(FORMAT.0).is_some_and(|format| format == FORMAT.1)
    };
    if tensors.metadata.is_empty() || !tensors.metadata.iter().all(says_so) {
        return Ok(());
    }
    for (name, info) in std::mem::take(&mut tensors.index) {
        let (name, info) = of_pytorch(&name, keeps_model(&name), info);
        let file_idx = info.file_idx;
        if tensors.index.insert(name.clone(), info).is_some() {
            let file = tensors.files[file_idx].path();
            return Err(Error::tensor(file, name, "stands twice"));
        }
    }
    Ok(())
}

/// Whether a name shortened by `strip_model_name_and_prefix` still begins with the model's name.
fn keeps_model(name: &str) -> bool {
    name.contains("model.")
}

/// Returns PyTorch's name for a variable, and the tensor in PyTorch's order of axes.
fn of_pytorch(name: &str, has_model: bool, info: TensorInfo) -> (String, TensorInfo) {
    let of_last = name.rsplit('/').next().unwrap_or(name);
    let last = of_last.split(':').next().unwrap_or(of_last);
    let order: &[usize] = match (last, info.shape.len()) {
        ("kernel", 4) => &[3, 2, 0, 1],
        ("kernel", 3) => &[2, 1, 0],
        ("kernel" | "pointwise_kernel" | "depthwise_kernel", 2) => &[1, 0],
        _ => &[],
    };
    let info = match info.shape[..] {
        // Convolutions of width 1, as in GPT-2.
        [1, n] if last == "bias" => TensorInfo {
            shape: vec![n],
            ..info
        },
        _ if order.is_empty() => info,
        _ => {
            let mut strides = vec![1; info.shape.len()];
            for axis in (1..info.shape.len()).rev() {
                strides[axis - 1] = strides[axis] * info.shape[axis].max(1);
            }
            TensorInfo {
                shape: order.iter().map(|axis| info.shape[*axis]).collect(),
                strides: Some(order.iter().map(|axis| strides[*axis]).collect()),
                ..info
            }
        }
    };
    (name_of(name, has_model), info)
}

/// Converts the name of a variable to PyTorch's.
fn name_of(name: &str, has_model: bool) -> String {
    let name = name.replace(":0", "");
    let mut parts: Vec<&str> = name.split('/').collect();
    let n_parts = parts.len();
    // `HERE___THERE` means THERE.
    for part in parts
        .iter_mut()
        .take(n_parts - 1)
        .skip(usize::from(has_model))
    {
        *part = part.rsplit_once("___").map_or(*part, |(_, there)| there);
    }
    // `layer_._0` is element 0 of a list.
    let mut parts: Vec<&str> = parts
        .iter()
        .flat_map(|part| part.split("_._"))
        .enumerate()
        .filter(|(nth, part)| *nth == 0 || !part.is_empty())
        .map(|(_, part)| part)
        .collect();
    if has_model && parts.len() > 1 {
        parts.remove(0);
    }
    if let Some(last) = parts.last_mut() {
        *last = match *last {
            "kernel" | "embeddings" | "gamma" => "weight",
            "beta" => "bias",
            "pointwise_kernel" => "pointwise.weight",
            "depthwise_kernel" => "depthwise.weight",
            other => other,
        };
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    #[test]
    fn variables_get_the_names_of_pytorch() {
        for (name, expected) in [
            (
                "tf_bert_for_masked_lm/bert/encoder/layer_._11/attention/self/query/kernel:0",
                "bert.encoder.layer.11.attention.self.query.weight",
            ),
            (
                "tf_bert_for_pre_training/mlm___cls/predictions/transform/LayerNorm/gamma:0",
                "cls.predictions.transform.LayerNorm.weight",
            ),
            ("shared/shared/embeddings:0", "shared.weight"),
            (
                "model.shared/model.shared/embeddings:0",
                "model.shared.weight",
            ),
            ("final_logits_bias:0", "final_logits_bias"),
            (
                "tf_bart_for_conditional_generation/model/decoder/layers.0/fc1/bias:0",
                "model.decoder.layers.0.fc1.bias",
            ),
        ] {
            assert_eq!(name_of(name, true), expected, "{name}");
        }
        assert_eq!(
            name_of("transformer/h_._0/ln_1/beta:0", false),
            "transformer.h.0.ln_1.bias"
        );
        assert_eq!(
            name_of("vocab/HERE___there/bias:0", false),
            "vocab.there.bias"
        );
    }

    fn fixture() -> Vec<u8> {
        let root = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/formats/layouts"
        );
        std::fs::read(format!("{root}/tf_gpt2_shards/tf_model-00002-of-00002.h5"))
            .expect("a fixture")
    }

    /// Opens a file from bytes and reads every tensor in it.
    fn read(bytes: &[u8]) -> Result<Tensors> {
        let mut tensors = Tensors::default();
        add(&mut tensors, DataFile::in_memory(bytes))?;
        for (name, info) in tensors.iter() {
            let values = tensors.get(name).expect("a tensor").widen()?;
            let n = if info.dtype.is_float() {
                info.n_elements()
            } else {
                0
            };
            assert_eq!(values.len(), n, "{name}");
        }
        Ok(tensors)
    }

    #[test]
    fn matrices_are_transposed_and_convolution_biases_lose_an_axis() {
        let info = |shape: &[usize]| TensorInfo {
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: None,
            file_idx: 0,
            bytes: 0..0,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        let turned = |name: &str, shape: &[usize]| {
            let (_, info) = of_pytorch(name, true, info(shape));
            (info.shape, info.strides)
        };
        assert_eq!(
            turned("m/q/kernel:0", &[2, 3]),
            (vec![3, 2], Some(vec![1, 3]))
        );
        assert_eq!(
            turned("m/p/kernel:0", &[2, 3, 4, 5]),
            (vec![5, 4, 2, 3], Some(vec![1, 5, 60, 20]))
        );
        assert_eq!(
            turned("m/c/kernel:0", &[2, 3, 4]),
            (vec![4, 3, 2], Some(vec![1, 4, 12]))
        );
        assert_eq!(turned("m/c/bias:0", &[1, 4]), (vec![4], None));
        assert_eq!(turned("final_logits_bias:0", &[1, 4]), (vec![1, 4], None));
        assert_eq!(turned("m/c_attn/weight:0", &[2, 3]), (vec![2, 3], None));
    }

    #[test]
    fn truncated_and_damaged_files_are_refused_or_read_within_their_bytes() {
        let whole = fixture();
        let n_whole = read(&whole).expect("opens").len();
        assert!(n_whole > 3, "{n_whole}");
        for n in (0..whole.len()).step_by(29) {
            assert!(read(&whole[..n]).is_err(), "{n}");
        }
        let mut n_refused = 0;
        for at in (0..whole.len()).step_by(5) {
            for byte in [0, 0xff, whole[at] ^ 1, whole[at].wrapping_add(8)] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                match read(&damaged) {
                    Ok(tensors) => assert!(tensors.len() <= n_whole + 1),
                    Err(error) => {
                        n_refused += 1;
                        assert_eq!(error.to_string().lines().count(), 1, "{at}: {error}");
                    }
                }
            }
        }
        assert!(n_refused > 500, "{n_refused}");
    }

    #[test]
    fn unsupported_features_are_refused_by_name() {
        let whole = fixture();
        let damaged = |find: &[u8], at: usize, byte: u8| {
            let start = whole.windows(find.len()).position(|part| part == find);
            let mut bytes = whole.clone();
            bytes[start.expect("a part") + at] = byte;
            read(&bytes).expect_err("refused").to_string()
        };
        let f32 = [
            0x11, 0x20, 0x1f, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0,
        ];
        for (part, said) in [
            (damaged(hdf5::SIGNATURE, 8, 3), "superblock 3"),
            (damaged(hdf5::SIGNATURE, 0, 0), "not an HDF5 file"),
            // Another exponent bias; big-endian.
            (damaged(&f32, 16, 126), "elements of class 1 and 4 bytes"),
            (damaged(&f32, 1, 0x21), "elements of class 1 and 4 bytes"),
            (damaged(b"TREE", 0, b'B'), "no list of members"),
            (damaged(b"SNOD", 0, b'B'), "no members are"),
            (damaged(b"HEAP", 0, b'B'), "no names are"),
        ] {
            assert!(part.contains(said), "{part}");
        }
        // The layout message: version 3, contiguous (1); chunked is 2.
        let chunked = damaged(&[8, 0, 24, 0, 0, 0, 0, 0, 3, 1], 9, 2);
        assert!(chunked.contains("h5repack -l CONTI"), "{chunked}");
    }
}
