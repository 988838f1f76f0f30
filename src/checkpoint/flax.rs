//! Flax weights (`.msgpack`): a tree of arrays. Each becomes a tensor under the name that it has in PyTorch's class.
//!
//! `flax.serialization` writes nested maps; an array is an extension of type 1 with its shape, element type and bytes. Linear
//! weights are stored transposed as `kernel`, embeddings as `embedding`, norm weights as `scale`.

use std::ops::Range;

use attnscope_compute::error::{Error, Result};
use rmp::Marker;

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::shape;
use super::stored::Stored;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;

/// Limit on nested maps.
const DEEPEST: usize = 32;
/// Limit on the arrays of a file.
const MOST: usize = 1 << 20;
/// Limit on the bytes of a name, of an element type, and of an array's header.
const LONGEST: usize = 1 << 10;
/// Bytes per read.
const WINDOW: usize = 1 << 14;
/// Type of the extension for arrays.
const ARRAY: u8 = 1;
/// Prefix of the weights in training states.
const PARAMS: &str = "params.";
/// Key that marks an array that Flax stored in chunks.
const CHUNKED: &str = "__msgpack_chunked_array__";

/// Adds the tensors of a file.
///
/// # Errors
/// When the file is not a tree of arrays, or an array reaches beyond its end.
pub fn add(tensors: &mut Tensors, file: DataFile) -> Result<()> {
    let path = file.path();
    let file_idx = tensors.files.len();
    let mut walk = Walk {
        file: &file,
        at: 0,
        window: (0, Vec::new()),
        found: Vec::new(),
    };
    let walked = walk.value("", 0);
    let (end, found) = (walk.at, walk.found);
    walked.map_err(|problem| match problem {
        Problem::Read(error) => error,
        Problem::File(problem) => Error::file(path, format!("byte {end}: {problem}")),
    })?;
    if end != file.len() {
        let n = file.len() - end;
        return Err(Error::file(
            path,
            format!("{n} bytes follow the last array"),
        ));
    }
    if found.is_empty() {
        return Err(Error::file(
            path,
            "holds no arrays; expected weights of Flax",
        ));
    }
    let has_params = found.iter().any(|(name, _)| name.starts_with(PARAMS));
    for (name, info) in found {
        let inside = name.strip_prefix(PARAMS);
        if has_params && inside.is_none() {
            continue;
        }
        let (name, info) = of_pytorch(inside.unwrap_or(&name), TensorInfo { file_idx, ..info });
        if tensors.index.insert(name.clone(), info).is_some() {
            return Err(Error::tensor(path, name, "stands twice"));
        }
    }
    tensors.files.push(file);
    Ok(())
}

/// Returns PyTorch's name for a tensor, and the tensor in PyTorch's order of axes.
fn of_pytorch(name: &str, info: TensorInfo) -> (String, TensorInfo) {
    let (base, last) = name.rsplit_once('.').unwrap_or(("", name));
    let weight = format!("{base}.weight");
    match (last, info.shape.as_slice()) {
        ("kernel", &[n_in, n_out]) => (
            weight,
            TensorInfo {
                shape: vec![n_out, n_in],
                strides: Some(vec![1, n_out]),
                ..info
            },
        ),
        ("embedding", [_, _]) | ("scale", [_]) => (weight, info),
        _ => (name.to_owned(), info),
    }
}

enum Problem {
    File(String),
    Read(Error),
}

impl From<String> for Problem {
    fn from(problem: String) -> Self {
        Self::File(problem)
    }
}

impl From<&str> for Problem {
    fn from(problem: &str) -> Self {
        Self::File(problem.to_owned())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

type Read<T> = std::result::Result<T, Problem>;

/// Walker through a file that skips the bytes of arrays.
struct Walk<'f> {
    file: &'f DataFile,
    at: usize,
    /// Position and bytes of the last read.
    window: (usize, Vec<u8>),
    found: Vec<(String, TensorInfo)>,
}

impl Walk<'_> {
    /// Takes the next `n` bytes, at most [`LONGEST`].
    fn take(&mut self, n: usize) -> Read<Vec<u8>> {
        let end = self.end_of(n)?;
        let is_inside =
            |(start, bytes): &(usize, Vec<u8>)| *start <= self.at && end <= start + bytes.len();
        if !is_inside(&self.window) {
            let to = self.at.saturating_add(WINDOW.max(n)).min(self.file.len());
            self.window = (self.at, self.file.read(self.at..to)?.into_owned());
        }
        let from = self.at - self.window.0;
        self.at = end;
        Ok(self.window.1[from..from + n].to_vec())
    }

    fn end_of(&self, n: usize) -> Read<usize> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.file.len());
        end.ok_or_else(|| format!("{n} bytes more are needed than the file has").into())
    }

    fn skip(&mut self, n: usize) -> Read<Range<usize>> {
        let end = self.end_of(n)?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    fn marker(&mut self) -> Read<Marker> {
        self.byte().map(Marker::from_u8)
    }

    /// Reads a big-endian integer of `n_bytes`.
    fn number(&mut self, n_bytes: usize) -> Read<usize> {
        let bytes = self.take(n_bytes)?;
        let number = bytes.iter().fold(0u64, |sum, b| sum << 8 | u64::from(*b));
        usize::try_from(number).map_err(|_| "a length that is too large".into())
    }

    fn value(&mut self, name: &str, depth: usize) -> Read<()> {
        if depth > DEEPEST {
            return Err(format!("more than {DEEPEST} maps inside each other").into());
        }
        match self.marker()? {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::False | Marker::True => {
                Ok(())
            }
            marker @ (Marker::FixMap(_) | Marker::Map16 | Marker::Map32) => {
                let n = self.length(marker)?;
                self.map(name, n, depth)
            }
            marker @ (Marker::FixArray(_) | Marker::Array16 | Marker::Array32) => {
                let n = self.length(marker)?;
                self.list(name, n, depth)
            }
            marker @ (Marker::FixStr(_)
            | Marker::Str8
            | Marker::Str16
            | Marker::Str32
            | Marker::Bin8
            | Marker::Bin16
            | Marker::Bin32) => {
                let n = self.length(marker)?;
                self.skip(n).map(drop)
            }
            Marker::U8 | Marker::I8 => self.skip(1).map(drop),
            Marker::U16 | Marker::I16 => self.skip(2).map(drop),
            Marker::F32 | Marker::U32 | Marker::I32 => self.skip(4).map(drop),
            Marker::F64 | Marker::U64 | Marker::I64 => self.skip(8).map(drop),
            marker @ (Marker::FixExt1
            | Marker::FixExt2
            | Marker::FixExt4
            | Marker::FixExt8
            | Marker::FixExt16
            | Marker::Ext8
            | Marker::Ext16
            | Marker::Ext32) => {
                let n = self.length(marker)?;
                self.extension(name, n)
            }
            Marker::Reserved => Err("a byte that means nothing in MessagePack".into()),
        }
    }

    /// Reads the length that follows a marker, or that the marker holds.
    fn length(&mut self, marker: Marker) -> Read<usize> {
        let n_bytes = match marker {
            Marker::FixMap(n) | Marker::FixArray(n) | Marker::FixStr(n) => return Ok(n.into()),
            Marker::FixExt1 => return Ok(1),
            Marker::FixExt2 => return Ok(2),
            Marker::FixExt4 => return Ok(4),
            Marker::FixExt8 => return Ok(8),
            Marker::FixExt16 => return Ok(16),
            Marker::Str8 | Marker::Bin8 | Marker::Ext8 => 1,
            Marker::Map32 | Marker::Array32 | Marker::Str32 | Marker::Bin32 | Marker::Ext32 => 4,
            _ => 2,
        };
        self.number(n_bytes)
    }

    fn map(&mut self, name: &str, n: usize, depth: usize) -> Read<()> {
        for _ in 0..n {
            let key = self.text()?;
            if key == CHUNKED {
                let problem = format!(
                    "{name} was written in pieces, which is not read; save the model again with from_flax=True and \
                     save_pretrained of transformers 4"
                );
                return Err(problem.into());
            }
            let inside = if name.is_empty() {
                key
            } else {
                format!("{name}.{key}")
            };
            self.value(&inside, depth + 1)?;
        }
        Ok(())
    }

    fn list(&mut self, name: &str, n: usize, depth: usize) -> Read<()> {
        for idx in 0..n {
            self.value(&format!("{name}.{idx}"), depth + 1)?;
        }
        Ok(())
    }

    fn text(&mut self) -> Read<String> {
        let n = match self.marker()? {
            marker @ (Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => {
                self.length(marker)?
            }
            _ => return Err("expected a name, found another value".into()),
        };
        if n > LONGEST {
            return Err(format!("a name of {n} bytes").into());
        }
        let bytes = self.take(n)?;
        String::from_utf8(bytes).map_err(|_| "a name that is no text".into())
    }

    /// Reads an array; skips any other extension.
    fn extension(&mut self, name: &str, n: usize) -> Read<()> {
        let kind = self.byte()?;
        let end = self.end_of(n)?;
        if kind != ARRAY {
            return self.skip(n).map(drop);
        }
        if self.marker()? != Marker::FixArray(3) {
            return Err(format!("{name}: expected shape, element type and bytes").into());
        }
        let n_axes = match self.marker()? {
            Marker::FixArray(n) => usize::from(n),
            _ => return Err(format!("{name}: expected a shape").into()),
        };
        let mut shape = Vec::with_capacity(n_axes);
        for _ in 0..n_axes {
            shape.push(match self.marker()? {
                Marker::FixPos(small) => usize::from(small),
                Marker::U8 => self.number(1)?,
                Marker::U16 => self.number(2)?,
                Marker::U32 => self.number(4)?,
                Marker::U64 => self.number(8)?,
                _ => return Err(format!("{name}: expected a size").into()),
            });
        }
        let dtype = match self.text()?.as_str() {
            "float32" => Dtype::F32,
            "float16" => Dtype::F16,
            "bfloat16" => Dtype::Bf16,
            "float64" => Dtype::F64,
            "int64" => Dtype::Other("i64", 8),
            "int32" => Dtype::Other("i32", 4),
            "uint32" => Dtype::Other("u32", 4),
            "uint8" => Dtype::Other("u8", 1),
            "int8" => Dtype::Other("i8", 1),
            "bool" => Dtype::Other("bool", 1),
            other => return Err(format!("{name}: elements of type {other:?} are not read").into()),
        };
        let n_bytes = match self.marker()? {
            marker @ (Marker::Bin8 | Marker::Bin16 | Marker::Bin32) => self.length(marker)?,
            _ => return Err(format!("{name}: expected bytes").into()),
        };
        let n_needed = shape::n_elements(&shape).and_then(|n| n.checked_mul(dtype.size()));
        if n_needed != Some(n_bytes) {
            let problem =
                format!("{name}: shape {shape:?} of {dtype} does not fill {n_bytes} bytes");
            return Err(problem.into());
        }
        let bytes = self.skip(n_bytes)?;
        if self.at != end {
            return Err(format!("{name}: an array of another length than is stated").into());
        }
        if self.found.len() == MOST {
            return Err(format!("more than {MOST} arrays").into());
        }
        let info = TensorInfo {
            dtype,
            shape,
            strides: None,
            file_idx: 0,
            bytes,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        self.found.push((name.to_owned(), info));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Encodes `{name: {…: array}}` as flax.serialization does.
    fn file(names: &[&str], shape: &[u8], dtype: &str, bytes: &[u8]) -> Vec<u8> {
        let mut array = vec![0x93, 0x90 | shape.len() as u8];
        array.extend(shape);
        array.push(0xa0 | dtype.len() as u8);
        array.extend(dtype.bytes());
        array.extend([0xc4, bytes.len() as u8]);
        array.extend(bytes);
        let mut all = Vec::new();
        for name in names {
            all.extend([0x81, 0xd9, name.len() as u8]);
            all.extend(name.bytes());
        }
        all.extend([0xc7, array.len() as u8, ARRAY]);
        all.extend(array);
        all
    }

    fn open(bytes: &[u8]) -> Result<Tensors> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("written");
        let mut tensors = Tensors::default();
        add(&mut tensors, DataFile::open(file.path())?)?;
        Ok(tensors)
    }

    #[test]
    fn a_kernel_is_transposed_and_called_weight() {
        let values: Vec<u8> = (0..6u8).flat_map(|v| f32::from(v).to_le_bytes()).collect();
        let stored = file(&["params", "h", "0", "kernel"], &[2, 3], "float32", &values);
        let tensors = open(&stored).expect("opens");
        let names: Vec<&str> = tensors.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["h.0.weight"]);
        let view = tensors.expect("h.0.weight", &[3, 2]).expect("a matrix");
        let wide = view.widen().expect("numbers");
        assert_eq!(wide.as_ref(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        for (last, name) in [("scale", "n.weight"), ("bias", "n.bias")] {
            let stored = file(&["n", last], &[1], "float32", &[0; 4]);
            assert!(open(&stored).expect("opens").contains(name), "{name}");
        }
    }

    #[test]
    fn wrong_sizes_and_truncated_files_are_refused() {
        let whole = file(&["a", "bias"], &[2], "float32", &[0; 8]);
        assert!(open(&whole).is_ok());
        for n in 0..whole.len() {
            assert!(open(&whole[..n]).is_err(), "{n}");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(open(&longer).is_err());
        let other = file(&["a", "bias"], &[3], "float32", &[0; 8]);
        let said = open(&other).expect_err("refused").to_string();
        assert!(said.contains("does not fill 8 bytes"), "{said}");
        let pieces = open(&file(&["a", CHUNKED], &[2], "float32", &[0; 8]));
        assert!(pieces.expect_err("refused").to_string().contains("pieces"));
    }
}
