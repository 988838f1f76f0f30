//! The four matrices of a head, as they read from or write to the residual.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product};
use attnscope_forward::linear_on_host;
use attnscope_spec::{KvSharing, LinearSource, Model, Place, Stack};
use rayon::prelude::*;

use super::eigen::factor;
use super::fold::Fold;

/// Matrices of one head with the preceding norm folded in, and products of them that are used repeatedly.
pub struct HeadMaps {
    pub place: Place,
    /// Layer whose input the keys and values are computed from.
    pub kv_layer_idx: usize,
    pub d_model: usize,
    pub d_head: usize,
    pub d_value: usize,
    /// [d_head, d_model]
    pub q: Vec<f32>,
    /// [d_head, d_model]
    pub k: Vec<f32>,
    /// [d_value, d_model]
    pub v: Vec<f32>,
    /// Output direction of each value column. // [d_value, d_model]
    pub o: Vec<f32>,
    /// Each matrix times its own transpose. // [d_head, d_head] or [d_value, d_value]
    pub gram_q: Vec<f64>,
    pub gram_k: Vec<f64>,
    pub gram_v: Vec<f64>,
    pub gram_o: Vec<f64>,
    /// Factors L with L·Lᵀ = Gram matrix.
    pub factor_q: Vec<f32>,
    pub factor_k: Vec<f32>,
    pub factor_v: Vec<f32>,
    pub factor_o: Vec<f32>,
    /// ‖W_Qᵀ W_K‖_F and ‖W_O W_V‖_F.
    pub qk_norm: f64,
    pub ov_norm: f64,
}

/// Matrices of all heads of a layer.
///
/// # Errors
/// When keys and values come through a latent vector, heads have partners or share a norm, or a tensor contradicts the spec.
pub fn maps_of(model: &Model, stack: Stack, layer_idx: usize) -> Result<Vec<HeadMaps>> {
    let spec = &model.spec;
    let block = spec.stack_of(stack).blocks().get(layer_idx);
    let Some((block, own)) = block.and_then(|block| Some((block, block.own()?))) else {
        return Ok(Vec::new());
    };
    let (attention, projections) = (&own.attention, &own.projections);
    if projections.latent.is_some() {
        let problem = format!(
            "{}: keys and values come through a latent vector with a norm of its own, so that its circuits are no products of matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    if projections.experts.is_some() {
        let problem = format!(
            "{}: each token has queries and outputs of the experts that it chooses, so that its circuits are no products of two matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    if projections.side.is_some() {
        let problem = format!(
            "{}: scores are summed with those of a second stream, so that its circuits are no products of matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    if projections.difference.is_some() {
        let problem = format!(
            "{}: what a head writes is divided by a norm that it shares with its partner, so that its circuits are no products of matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    let rope = attention.rope.as_ref();
    if rope.is_some_and(|rope| rope.turns_values) {
        let problem = format!(
            "{}: values turn with their position, so that what a head writes is no product of matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    if projections.changes_z() {
        let problem = format!(
            "{}: a norm of all heads stands between their outputs and the output map, or a query's own value is taken out of them, so that what a head writes is no product of matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    if projections.share_of_values().is_some() {
        let problem = format!(
            "{}: the values of another layer are added to those of this one, so that what a head writes is no product of its matrices",
            spec.family
        );
        return Err(Error::Setting(problem));
    }
    let d_model = spec.d_model;
    let fold = Fold::read(model, &block.attn_pre)?;
    // Shared keys and values of an earlier layer read that layer's input.
    let kv_layer_idx = match projections.shared.as_deref() {
        Some(KvSharing::Reuses { layer_idx, .. }) => *layer_idx,
        _ => layer_idx,
    };
    let of_keys = match spec.stack_of(stack).blocks().get(kv_layer_idx) {
        Some(source) if kv_layer_idx != layer_idx => Some(Fold::read(model, &source.attn_pre)?),
        _ => None,
    };
    let rows = |source: &LinearSource, fold: &Fold| -> Result<Vec<f32>> {
        let mut rows = rows_of(model, source)?;
        fold.fold_into(&mut rows, d_model);
        Ok(rows)
    };
    let of_keys = of_keys.as_ref().unwrap_or(&fold);
    let (q, k, v) = (
        rows(&projections.q, &fold)?,
        rows(&projections.k, of_keys)?,
        rows(&projections.v, of_keys)?,
    );
    let o = columns_of(model, &projections.o)?; // [n_heads · d_value, d_model]
    let part = |all: &[f32], head_idx: usize, width: usize| {
        all[head_idx * width * d_model..(head_idx + 1) * width * d_model].to_vec()
    };
    let (d_head, d_value) = (attention.d_head, attention.d_value);
    let heads: Vec<HeadMaps> = (0..attention.n_heads)
        .into_par_iter()
        .map(|head_idx| {
            let kv = attention.kv_head_of(head_idx);
            let q = part(&q, head_idx, d_head);
            let k = part(&k, kv, d_head);
            let v = part(&v, kv, d_value);
            let o = part(&o, head_idx, d_value);
            let [gram_q, gram_k] = [&q, &k].map(|rows| gram(rows, d_head, d_model));
            let [gram_v, gram_o] = [&v, &o].map(|rows| gram(rows, d_value, d_model));
            let narrow = |gram: &[f64], n: usize| {
                let factor = factor(gram, n);
                factor.iter().map(|value| *value as f32).collect()
            };
            HeadMaps {
                place: Place::layer(stack, layer_idx).head(head_idx),
                kv_layer_idx,
                d_model,
                d_head,
                d_value,
                factor_q: narrow(&gram_q, d_head),
                factor_k: narrow(&gram_k, d_head),
                factor_v: narrow(&gram_v, d_value),
                factor_o: narrow(&gram_o, d_value),
                qk_norm: trace_of(&gram_q, &gram_k).sqrt(),
                ov_norm: trace_of(&gram_o, &gram_v).sqrt(),
                q,
                k,
                v,
                o,
                gram_q,
                gram_k,
                gram_v,
                gram_o,
            }
        })
        .collect();
    Ok(heads)
}

/// Weights of a linear map with one row per output. // [n_out, n_in]
fn rows_of(model: &Model, source: &LinearSource) -> Result<Vec<f32>> {
    let linear = linear_on_host(&model.checkpoint.tensors, source, &|| false)?;
    let values = linear.widened();
    Ok(if linear.is_input_major {
        transposed(&values, linear.n_in, linear.n_out)
    } else {
        values.into_owned()
    })
}

/// Weights of a linear map with one row per input. // [n_in, n_out]
fn columns_of(model: &Model, source: &LinearSource) -> Result<Vec<f32>> {
    let linear = linear_on_host(&model.checkpoint.tensors, source, &|| false)?;
    let values = linear.widened();
    Ok(if linear.is_input_major {
        values.into_owned()
    } else {
        transposed(&values, linear.n_out, linear.n_in)
    })
}

/// [n, m] → [m, n].
fn transposed(values: &[f32], n: usize, m: usize) -> Vec<f32> {
    let mut out = vec![0.0; n * m];
    for (row_idx, row) in values.chunks(m.max(1)).enumerate() {
        for (column, value) in row.iter().enumerate() {
            out[column * n + row_idx] = *value;
        }
    }
    out
}

/// M·Mᵀ. // [n, width] → [n, n]
fn gram(rows: &[f32], n: usize, width: usize) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    let own = Matrix::row_major(rows, n, width);
    let mut to = MatrixMut::new(&mut out, n, n, n);
    product(&mut to, own, own.transposed(), false, Threads::One);
    // Rounding must not make the result asymmetric.
    let even = |at: usize| (f64::from(out[at]) + f64::from(out[at % n * n + at / n])) / 2.0;
    (0..n * n).map(even).collect()
}

/// tr(A·B) of symmetric matrices.
fn trace_of(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>().max(0.0)
}
