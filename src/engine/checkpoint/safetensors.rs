//! Safetensors files: one, or shards named by an index; headers are checked before anything is believed.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype as StDtype, SafeTensorError, SafeTensors};

use super::dtype::Dtype;
use super::map::Bytes;
use super::shards;
use super::stored::Stored;
use super::tensors::{TensorInfo, Tensors};
use crate::error::{Error, Result};

/// Bytes that give the header's length, before the header itself.
const LENGTH_BYTES: usize = 8;

/// Opens one safetensors file.
///
/// # Errors
/// When the file cannot be mapped, or its header does not describe its bytes exactly.
pub fn open_file(path: &Path) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    add(&mut tensors, Bytes::map(path)?)?;
    Ok(tensors)
}

/// The strings that stand beside the tensors of a file.
///
/// # Errors
/// As for [`open_file`].
pub fn metadata(path: &Path) -> Result<BTreeMap<String, String>> {
    let bytes = Bytes::map(path)?;
    let data = bytes.as_slice();
    let (_, metadata) =
        SafeTensors::read_metadata(data).map_err(|e| Error::file(path, explain(&e, data)))?;
    let strings = metadata.metadata().clone().unwrap_or_default();
    Ok(strings.into_iter().collect())
}

/// Opens a safetensors file that is part of the program.
///
/// # Errors
/// As for [`open_file`].
pub fn open_compiled_in(name: &str, bytes: &'static [u8]) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    add(&mut tensors, Bytes::compiled_in(name, bytes))?;
    Ok(tensors)
}

/// Opens every shard that an index names, and checks that each tensor is where the index says.
///
/// # Errors
/// As for [`open_file`], and when the index and the shards do not fit together.
pub fn open_sharded(index_path: &Path) -> Result<Tensors> {
    shards::open(index_path, add)
}

/// Reads the header of `bytes` and adds its tensors.
fn add(tensors: &mut Tensors, bytes: Bytes) -> Result<()> {
    let path = bytes.path().to_path_buf();
    let data = bytes.as_slice();
    let (header_len, metadata) =
        SafeTensors::read_metadata(data).map_err(|e| Error::file(&path, explain(&e, data)))?;
    let start = LENGTH_BYTES + header_len;
    let described = metadata.data_len();
    if data.len() != start + described {
        let problem = format!(
            "truncated or lengthened: the header describes {described} bytes of data, the file holds {}",
            data.len() - start
        );
        return Err(Error::file(&path, problem));
    }
    let file_idx = tensors.files.len();
    // By name, so that the same file is refused in the same words every time.
    for (name, info) in metadata.tensors().into_iter().collect::<BTreeMap<_, _>>() {
        let (first, last) = info.data_offsets;
        let described = TensorInfo {
            dtype: dtype(info.dtype),
            shape: info.shape.clone(),
            strides: None,
            file_idx,
            bytes: start + first..start + last,
            stored: Stored::AsIs,
            scales: None,
        };
        if tensors.index.insert(name.clone(), described).is_some() {
            return Err(Error::tensor(&path, name, "stands in two shards"));
        }
    }
    tensors.files.push(bytes);
    Ok(())
}

fn dtype(stored: StDtype) -> Dtype {
    match stored {
        StDtype::F64 => Dtype::F64,
        StDtype::F32 => Dtype::F32,
        StDtype::F16 => Dtype::F16,
        StDtype::BF16 => Dtype::Bf16,
        StDtype::I64 => Dtype::Other("i64", 8),
        StDtype::U64 => Dtype::Other("u64", 8),
        StDtype::I32 => Dtype::Other("i32", 4),
        StDtype::U32 => Dtype::Other("u32", 4),
        StDtype::I16 => Dtype::Other("i16", 2),
        StDtype::U16 => Dtype::Other("u16", 2),
        StDtype::I8 => Dtype::Other("i8", 1),
        StDtype::U8 => Dtype::Other("u8", 1),
        StDtype::BOOL => Dtype::Other("bool", 1),
        StDtype::F8_E4M3 => Dtype::F8E4m3,
        StDtype::F8_E5M2 => Dtype::F8E5m2,
        _ => Dtype::Other("8-bit or smaller float", 1),
    }
}

/// The reader's verdict in words that say what was expected and what was found.
fn explain(error: &SafeTensorError, data: &[u8]) -> String {
    let claimed = data
        .first_chunk::<LENGTH_BYTES>()
        .map(|b| u64::from_le_bytes(*b));
    match (error, claimed) {
        (SafeTensorError::HeaderTooSmall, _) | (_, None) => {
            format!("is not a safetensors file: expected at least 8 bytes, found {}", data.len())
        }
        (SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength, Some(n)) => format!(
            "truncated or not a safetensors file: the header claims {n} bytes, the file holds {} after it",
            data.len() - LENGTH_BYTES
        ),
        (SafeTensorError::InvalidOffset(name), _) => {
            format!("tensor {name}: its bytes overlap another tensor's, leave a gap, or run backwards")
        }
        (SafeTensorError::TensorInvalidInfo, _) => {
            "a tensor's shape and element type do not give the number of bytes that its offsets claim"
                .to_owned()
        }
        (SafeTensorError::MetadataIncompleteBuffer, _) => {
            "truncated or lengthened: the tensors' offsets do not cover the file's bytes exactly".to_owned()
        }
        (other, _) => format!("the safetensors header cannot be read ({other})"),
    }
}
