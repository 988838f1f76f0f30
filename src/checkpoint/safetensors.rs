//! Safetensors files: one file, or shards named by an index; headers are checked before they are used.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use safetensors::Dtype as StDtype;
use safetensors::tensor::TensorInfo as StInfo;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::stand_ins::is_partly_downloaded;
use super::stored::Stored;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;
use super::{shape, shards};

/// Bytes of the header's length, which precedes the header.
const LENGTH_BYTES: usize = 8;

/// The format's limit on the bytes of a header.
const LONGEST_HEADER: u64 = 100_000_000;

/// Opens one safetensors file.
///
/// # Errors
/// When the file cannot be read, or its header does not describe its bytes exactly.
pub fn open_file(path: &Path) -> Result<Tensors> {
    open(DataFile::open(path)?).map(|(tensors, _)| tensors)
}

/// Opens one safetensors file, and returns its metadata too.
///
/// # Errors
/// As for [`open_file`].
pub fn open_with_metadata(path: &Path) -> Result<(Tensors, BTreeMap<String, String>)> {
    open(DataFile::open(path)?)
}

/// Checks the header of a file, which may not be downloaded further than that; returns the bytes of the whole file.
///
/// # Errors
/// As for [`open_file`].
pub fn described_bytes(path: &Path) -> Result<u64> {
    let tensors = open_file(path)?;
    Ok(tensors.files.iter().map(|file| file.len() as u64).sum())
}

fn open(file: DataFile) -> Result<(Tensors, BTreeMap<String, String>)> {
    let mut tensors = Tensors::default();
    let strings = add(&mut tensors, file)?;
    Ok((tensors, strings))
}

/// Opens a safetensors file that is compiled into the program.
///
/// # Errors
/// As for [`open_file`].
pub fn open_compiled_in(name: &str, bytes: &'static [u8]) -> Result<Tensors> {
    open(DataFile::compiled_in(name, bytes)).map(|(tensors, _)| tensors)
}

/// Opens every shard that an index names, and checks that each tensor is in the shard that the index states.
///
/// # Errors
/// As for [`open_file`], and when the index and the shards do not match.
pub fn open_sharded(index_path: &Path) -> Result<Tensors> {
    shards::open(index_path, |tensors, file| add(tensors, file).map(drop))
}

/// Opens shards that have no index.
///
/// # Errors
/// As for [`open_file`], and when two of them contain the same tensor.
pub fn open_files(files: &[PathBuf]) -> Result<Tensors> {
    shards::open_all(files, |tensors, file| add(tensors, file).map(drop))
}

/// Reads the header of a file and adds its tensors; returns the file's metadata.
fn add(tensors: &mut Tensors, file: DataFile) -> Result<BTreeMap<String, String>> {
    let path = file.path().to_path_buf();
    let (start, mut header) = header(&file)?;
    let n_held = file.len() - start;
    let described = header.check_places(&path)?;
    let whole = start.checked_add(described);
    let file = match whole.filter(|_| n_held < described && is_partly_downloaded(&path)) {
        Some(whole) => file.beginning(start, whole)?,
        None => file,
    };
    if file.len() - start != described {
        let problem = format!(
            "truncated or lengthened: the header describes {described} bytes of data, the file holds {n_held}; download or copy it again"
        );
        return Err(Error::file(&path, problem));
    }
    let file_idx = tensors.files.len();
    // Sorted by name, so that errors do not depend on the order of the file, and the map is built quickly.
    header.tensors.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let of_file = header.tensors.into_iter().map(|(name, info)| {
        let (first, last) = info.data_offsets;
        let described = TensorInfo {
            dtype: dtype(info.dtype),
            shape: info.shape,
            strides: None,
            file_idx,
            bytes: start + first..start + last,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        (name, described)
    });
    if tensors.index.is_empty() {
        tensors.index = of_file.collect();
    } else {
        for (name, described) in of_file {
            if tensors.index.insert(name.clone(), described).is_some() {
                return Err(Error::tensor(&path, name, "stands in two shards"));
            }
        }
    }
    tensors.files.push(file);
    let strings: BTreeMap<String, String> = header.strings.into_iter().flatten().collect();
    tensors.metadata.push(strings.clone());
    Ok(strings)
}

/// Returns the offset of the data in a file of `n_bytes`, from its first bytes.
///
/// # Errors
/// Says what is wrong when they cannot begin a safetensors file of this length.
pub fn data_start(first: &[u8], n_bytes: u64) -> std::result::Result<u64, String> {
    let Some(length) = first.first_chunk::<LENGTH_BYTES>() else {
        let n = first.len();
        return Err(format!(
            "is not a safetensors file: expected at least {LENGTH_BYTES} bytes, found {n}"
        ));
    };
    let claimed = u64::from_le_bytes(*length);
    let n_after = n_bytes.saturating_sub(LENGTH_BYTES as u64);
    if claimed > n_after.min(LONGEST_HEADER) {
        return Err(format!(
            "truncated or not a safetensors file: the header claims {claimed} bytes, the file holds {n_after} after it; download or copy it again"
        ));
    }
    Ok(LENGTH_BYTES as u64 + claimed)
}

/// Returns the offset of the data and the parsed header.
fn header(file: &DataFile) -> Result<(usize, Header)> {
    let refused = |problem: String| Error::file(file.path(), problem);
    let length = file.read(0..LENGTH_BYTES)?;
    let start = data_start(&length, file.len() as u64).map_err(refused)? as usize;
    let text = file.read(LENGTH_BYTES..start)?;
    let header: Header = serde_json::from_slice(&text)
        .map_err(|e| refused(format!("the safetensors header cannot be read ({e})")))?;
    Ok((start, header))
}

impl Header {
    /// Checks that tensors are contiguous and that each has the size of its shape and element type. Returns the total size in
    /// bytes.
    ///
    /// The `safetensors` crate does the same with three maps of all names, which takes seconds for a million tensors.
    ///
    /// # Errors
    /// Names the first invalid tensor, in order of position.
    fn check_places(&mut self, path: &Path) -> Result<usize> {
        self.tensors.sort_by_key(|(_, info)| info.data_offsets);
        let mut end = 0;
        for (name, info) in &self.tensors {
            let refused = |problem: String| Err(Error::tensor(path, name, problem));
            let (first, last) = info.data_offsets;
            if first != end || last < first {
                let problem =
                    "its bytes overlap another tensor's, leave a gap, or run backwards".to_owned();
                return refused(problem);
            }
            end = last;
            let n_bits = shape::n_elements(&info.shape)
                .and_then(|n_elements| n_elements.checked_mul(info.dtype.bitsize()));
            let Some(n_bits) = n_bits else {
                let problem = format!(
                    "shape {:?} has more elements than can be counted",
                    info.shape
                );
                return refused(problem);
            };
            if n_bits % 8 != 0 || n_bits / 8 != last - first {
                let problem = format!(
                    "its shape and element type do not give the {} bytes that its offsets claim: {:?} of {}",
                    last - first,
                    info.shape,
                    dtype(info.dtype)
                );
                return refused(problem);
            }
        }
        Ok(end)
    }
}

/// Key of the metadata strings.
const STRINGS: &str = "__metadata__";

fn twice<E: serde::de::Error>(name: &str) -> E {
    E::custom(format!("{name:?} stands twice"))
}

/// The header as JSON; duplicate names are refused.
#[derive(Debug, Default)]
struct Header {
    strings: Option<HashMap<String, String>>,
    tensors: Vec<(String, StInfo)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name != STRINGS {
                        header.tensors.push((name, map.next_value()?));
                    } else if header.strings.is_none() {
                        header.strings = Some(map.next_value()?);
                    } else {
                        return Err(twice(&name));
                    }
                }
                header.tensors.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                let mut pairs = header.tensors.windows(2);
                match pairs.find(|pair| pair[0].0 == pair[1].0) {
                    Some(pair) => Err(twice(&pair[0].0)),
                    None => Ok(header),
                }
            }
        }

        from.deserialize_map(Entries)
    }
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
