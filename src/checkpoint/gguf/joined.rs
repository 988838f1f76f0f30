//! Tensors that a file splits and Hugging Face stores as one: concatenated by rows when they are read.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::architectures::Architecture;
use super::facts::Sizes;
use super::metadata::Metadata;
use crate::made::{ComputedTensor, Joined};
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;
use crate::tensors::Tensors;

/// Joins the tensors that the architecture's converter has split.
///
/// # Errors
/// When the parts fit neither each other nor the sizes in the metadata.
pub(super) fn join(
    metadata: &Metadata<'_>,
    prefix: &str,
    architecture: &Architecture,
    sizes: Sizes,
    tensors: &mut Tensors,
) -> Result<()> {
    let mut layers = (0..sizes.n_layers).map(|idx| format!("{}.{idx}", architecture.layers));
    match architecture.name {
        "granitehybrid" => layers.try_for_each(|at| gate_and_up(metadata.path, &at, tensors)),
        "qwen3next" => {
            let heads = KeyHeads::read(metadata, prefix)?;
            layers.try_for_each(|at| heads.join(metadata.path, &at, tensors))
        }
        _ => Ok(()),
    }
}

/// Stacks the gate projection of the shared expert on its up projection.
fn gate_and_up(path: &Path, at: &str, tensors: &mut Tensors) -> Result<()> {
    let [gate, up] = ["gate_proj", "up_proj"].map(|name| format!("{at}.shared_mlp.{name}.weight"));
    let (Some(of_gate), Some(of_up)) = (tensors.index.remove(&gate), tensors.index.remove(&up))
    else {
        return Ok(());
    };
    let all = [of_gate, of_up].map(|info| {
        let n_rows = info.shape.first().copied().unwrap_or(0);
        (info, n_rows)
    });
    let parts = all.map(|(info, n_rows)| rows_of(path, &gate, &info, 0..n_rows));
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    let name = format!("{at}.shared_mlp.input_linear.weight");
    insert(path, tensors, name, parts)
}

/// The key heads of a delta-rule layer; Hugging Face's tensor groups values and gates by the key head that they share.
struct KeyHeads {
    n: usize,
    d_key: usize,
    /// Rows of values per key head.
    n_values: usize,
}

impl KeyHeads {
    fn read(metadata: &Metadata<'_>, prefix: &str) -> Result<Self> {
        const LARGEST: u64 = 1 << 20;
        let size = |tail: &str| {
            let key = format!("{prefix}.ssm.{tail}");
            metadata.size(&key, LARGEST).map(|size| size as usize)
        };
        let (n, d_inner) = (size("group_count")?, size("inner_size")?);
        if !d_inner.is_multiple_of(n) {
            let problem = format!("expected a multiple of the {n} heads of keys, found {d_inner}");
            let key = format!("{prefix}.ssm.inner_size");
            return Err(Error::config(metadata.path, key, problem));
        }
        Ok(Self {
            n,
            d_key: size("state_size")?,
            n_values: d_inner / n,
        })
    }

    /// Interleaves by key head the file's queries, keys and values (one tensor) and gates (another).
    fn join(&self, path: &Path, at: &str, tensors: &mut Tensors) -> Result<()> {
        let [qkv, gate] =
            ["qkv", "z"].map(|part| format!("{at}.linear_attn.in_proj_{part}.weight"));
        let index = &mut tensors.index;
        let (Some(of_qkv), Some(of_gate)) = (index.remove(&qkv), index.remove(&gate)) else {
            return Ok(());
        };
        let (n, d_key, n_values) = (self.n, self.d_key, self.n_values);
        for (name, info, expected) in [
            (&qkv, &of_qkv, n * (2 * d_key + n_values)),
            (&gate, &of_gate, n * n_values),
        ] {
            if info.shape.len() != 2 || info.shape[0] != expected {
                let problem = format!("expected {expected} rows, found shape {:?}", info.shape);
                return Err(Error::tensor(path, name, problem));
            }
        }
        let mut parts = Vec::with_capacity(4 * n);
        for head in 0..n {
            let behind = |before: usize, width: usize| {
                let start = before + head * width;
                rows_of(path, &qkv, &of_qkv, start..start + width)
            };
            parts.push(behind(0, d_key)?);
            parts.push(behind(n * d_key, d_key)?);
            parts.push(behind(2 * n * d_key, n_values)?);
            let own = head * n_values..(head + 1) * n_values;
            parts.push(rows_of(path, &gate, &of_gate, own)?);
        }
        insert(
            path,
            tensors,
            format!("{at}.linear_attn.in_proj_qkvz.weight"),
            parts,
        )
    }
}

/// Describes some rows of a stored matrix as a tensor.
fn rows_of(path: &Path, name: &str, info: &TensorInfo, rows: Range<usize>) -> Result<TensorInfo> {
    let [n_rows, width] = info.shape[..] else {
        let problem = format!("expected a matrix, found shape {:?}", info.shape);
        return Err(Error::tensor(path, name, problem));
    };
    let is_plain = info.stored == Stored::AsIs && info.made.is_none();
    if !is_plain || n_rows == 0 || rows.end > n_rows {
        let problem = format!("expected rows {rows:?} of a plain matrix, found {n_rows} rows");
        return Err(Error::tensor(path, name, problem));
    }
    let n_bytes = info.bytes.len() / n_rows;
    let start = info.bytes.start;
    Ok(TensorInfo {
        shape: vec![rows.len(), width],
        bytes: start + rows.start * n_bytes..start + rows.end * n_bytes,
        ..info.clone()
    })
}

/// Adds the concatenation of the parts along the first axis as a tensor.
fn insert(path: &Path, tensors: &mut Tensors, name: String, parts: Vec<TensorInfo>) -> Result<()> {
    let Some(first) = parts.first().cloned() else {
        return Ok(());
    };
    if let Some(other) = parts.iter().find(|part| part.shape[1] != first.shape[1]) {
        let problem = format!("{:?} and {:?} do not fit", first.shape, other.shape);
        return Err(Error::tensor(path, name, problem));
    }
    let n_rows = parts.iter().map(|part| part.shape[0]).sum();
    let info = TensorInfo {
        shape: vec![n_rows, first.shape[1]],
        made: Some(Arc::new(ComputedTensor::Joined(Joined { parts, axis: 0 }))),
        ..first
    };
    tensors.index.insert(name, info);
    Ok(())
}
