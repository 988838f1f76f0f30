//! Changes to tensors that already have Hugging Face's names: joins what a file splits, renames, and adds what is in metadata.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::facts::Sizes;
use super::metadata::Metadata;
use super::value::Kind;
use crate::Dtype;
use crate::made::{ComputedTensor, Joined};
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;
use crate::tensors::Tensors;

fn layers(sizes: Sizes) -> impl Iterator<Item = String> {
    (0..sizes.n_layers).map(|layer_idx| format!("model.layers.{layer_idx}"))
}

/// Renames Falcon's first norm in models whose attention has a norm of its own.
pub(super) fn falcon(_: &Metadata<'_>, _: Sizes, tensors: &mut Tensors) -> Result<()> {
    rename_beside(tensors, ".ln_attn.", ".input_layernorm.", ".ln_mlp.");
    Ok(())
}

/// Renames T5's up projection in models with a gate.
pub(super) fn t5(_: &Metadata<'_>, _: Sizes, tensors: &mut Tensors) -> Result<()> {
    rename_beside(tensors, ".wi_0.", ".wi.", ".wi_1.");
    Ok(())
}

/// Replaces a part of names, if any name contains `other`.
fn rename_beside(tensors: &mut Tensors, other: &str, old: &str, new: &str) {
    if tensors.index.keys().any(|name| name.contains(other)) {
        let index = std::mem::take(&mut tensors.index).into_iter();
        let renamed = index.map(|(name, info)| (name.replace(old, new), info));
        tensors.index = renamed.collect();
    }
}

/// Adds the parameters of the learned activation xIELU, which the converter moved into metadata.
pub(super) fn xielu(metadata: &Metadata<'_>, sizes: Sizes, tensors: &mut Tensors) -> Result<()> {
    for name in ["alpha_p", "alpha_n", "beta", "eps"] {
        let key = format!("xielu.{name}");
        let Some(list) = metadata.list(&key)? else {
            continue;
        };
        if list.kind != Kind::F32 || list.len as u64 != sizes.n_layers {
            let problem = format!("expected {} numbers of 32 bits", sizes.n_layers);
            return Err(Error::config(metadata.path, key, problem));
        }
        for (at, start) in layers(sizes).zip(list.bytes.clone().step_by(4)) {
            let info = TensorInfo {
                dtype: Dtype::F32,
                shape: vec![1],
                strides: None,
                file_idx: 0,
                bytes: start..start + 4,
                stored: Stored::AsIs,
                scales: None,
                made: None,
            };
            tensors
                .index
                .insert(format!("{at}.mlp.act_fn.{name}"), info);
        }
    }
    Ok(())
}

/// Joins the up-projections from DeepSeek's latent vector to keys and to values, which are stored by head.
pub(super) fn latent(_: &Metadata<'_>, sizes: Sizes, tensors: &mut Tensors) -> Result<()> {
    layers(sizes).try_for_each(|at| keys_and_values(&format!("{at}.self_attn"), tensors))
}

fn keys_and_values(at: &str, tensors: &mut Tensors) -> Result<()> {
    let [keys, values] = ["k", "v"].map(|which| format!("{at}.{which}_b_proj.weight"));
    let path = tensors.file_of(&keys).to_path_buf();
    let index = &mut tensors.index;
    let (Some(keys), Some(values)) = (index.remove(&keys), index.remove(&values)) else {
        return Ok(());
    };
    let ([n_heads, d_latent, d_own], [n_value_heads, d_value, value_latent]) =
        (shape(&keys), shape(&values));
    if n_heads != n_value_heads || d_latent != value_latent || n_heads == 0 {
        let problem = format!("{:?} and {:?} do not fit", keys.shape, values.shape);
        return Err(Error::tensor(&path, format!("{at}.k_b_proj"), problem));
    }
    // Keys are stored transposed.
    let of_head = |info: &TensorInfo, head: usize, shape: [usize; 2], stored: Stored| {
        let n_bytes = info.bytes.len() / n_heads;
        let start = info.bytes.start + head * n_bytes;
        TensorInfo {
            shape: shape.to_vec(),
            bytes: start..start + n_bytes,
            stored,
            ..info.clone()
        }
    };
    let parts = (0..n_heads).flat_map(|head| {
        [
            of_head(&keys, head, [d_own, d_latent], Stored::Transposed),
            of_head(&values, head, [d_value, d_latent], Stored::AsIs),
        ]
    });
    let joined = ComputedTensor::Joined(Joined::along(0, parts.collect()));
    let info = TensorInfo {
        shape: vec![n_heads * (d_own + d_value), d_latent],
        made: Some(Arc::new(joined)),
        ..keys.clone()
    };
    index.insert(format!("{at}.kv_b_proj.weight"), info);
    Ok(())
}

/// Returns a shape with three axes; zeros for any other number of axes.
fn shape(info: &TensorInfo) -> [usize; 3] {
    info.shape.as_slice().try_into().unwrap_or_default()
}

/// Joins gate and up projection of the shared experts of Granite 4.
pub(super) fn granite(metadata: &Metadata<'_>, sizes: Sizes, tensors: &mut Tensors) -> Result<()> {
    layers(sizes).try_for_each(|at| gate_and_up(metadata.path, &at, tensors))
}

/// Joins queries, keys, values and gates of the delta-rule layers of Qwen3-Next.
pub(super) fn delta_rule(
    metadata: &Metadata<'_>,
    sizes: Sizes,
    tensors: &mut Tensors,
) -> Result<()> {
    let heads = KeyHeads::read(metadata)?;
    layers(sizes).try_for_each(|at| heads.join(metadata.path, &at, tensors))
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
    fn read(metadata: &Metadata<'_>) -> Result<Self> {
        const LARGEST: u64 = 1 << 20;
        const INNER: &str = "qwen3next.ssm.inner_size";
        let size = |key: &str| metadata.size(key, LARGEST).map(|size| size as usize);
        let (n, d_inner) = (size("qwen3next.ssm.group_count")?, size(INNER)?);
        if !d_inner.is_multiple_of(n) {
            let problem = format!("expected a multiple of the {n} heads of keys, found {d_inner}");
            return Err(Error::config(metadata.path, INNER, problem));
        }
        Ok(Self {
            n,
            d_key: size("qwen3next.ssm.state_size")?,
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
        made: Some(Arc::new(ComputedTensor::Joined(Joined::along(0, parts)))),
        ..first
    };
    tensors.index.insert(name, info);
    Ok(())
}
