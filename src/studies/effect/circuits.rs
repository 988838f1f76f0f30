//! Heads judged by their weights alone: copying, ranks of the QK and OV circuits, and composition between heads (Elhage et al.
//! 2021, A Mathematical Framework for Transformer Circuits).

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product};
use attnscope_compute::pace::Pace;
use attnscope_forward::{linear_rows_on_host, round_rows};
use attnscope_spec::{Model, Place};
use rayon::prelude::*;

use super::capture::{of_blocks, of_one_stream};
use super::eigen::{eigenvalues, factor, symmetric_eigenvalues};
use super::fold::Fold;
use super::maps::{HeadMaps, maps_of};

/// Number of vocabulary rows read at a time.
const TOKENS_AT_ONCE: usize = 2048;

/// Effective and stable rank of a circuit, from its singular values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranks {
    /// exp of the entropy of σ/Σσ (Roy and Vetterli 2007).
    pub effective: f64,
    /// ‖·‖²_F / ‖·‖²₂.
    pub stable: f64,
}

/// Input of a later head that an earlier head writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Into {
    Queries,
    Keys,
    Values,
}

impl Into {
    pub const ALL: [Self; 3] = [Self::Queries, Self::Keys, Self::Values];

    /// Letter of the composition, as in Q-, K- and V-composition.
    pub fn letter(self) -> char {
        match self {
            Self::Queries => 'q',
            Self::Keys => 'k',
            Self::Values => 'v',
        }
    }
}

/// How strongly an earlier head's output feeds a later head's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Composition {
    pub from: Place,
    pub to: Place,
    pub into: Into,
    /// ‖A·B‖_F / (‖A‖_F ‖B‖_F), minus its value for unrelated matrices: 1/√d_model.
    pub score: f64,
}

/// Circuits of one head.
#[derive(Debug, Clone)]
pub struct Circuit {
    pub place: Place,
    /// Σ Re λ / Σ |λ| of the eigenvalues of W_E W_V W_O W_U: 1 if the head raises the logits of the tokens it attends to.
    /// `None` if embedding and unembedding have no common space, or the eigenvalues do not converge.
    pub copying: Option<f64>,
    /// Share of eigenvalues with a positive real part.
    pub positive_share: Option<f64>,
    pub qk: Ranks,
    pub ov: Ranks,
}

/// Circuits of all heads in the stack that predicts.
#[derive(Debug, Clone)]
pub struct Circuits {
    pub heads: Vec<Circuit>,
    /// Pairs that end at a requested head, highest score first.
    pub compositions: Vec<Composition>,
    /// Notes to the user on what was folded in or left out.
    pub notes: Vec<String>,
}

/// Computes the circuits of all heads, and the compositions that end at heads which `wants` selects.
///
/// # Errors
/// When keys and values come through a latent vector, a tensor contradicts the spec, or the pace stops it.
pub fn circuits(
    model: &Model,
    wants: &dyn Fn(Place) -> bool,
    tell: &mut dyn FnMut(usize, usize),
    pace: &dyn Pace,
) -> Result<Circuits> {
    of_blocks(model)?;
    of_one_stream(model)?;
    let spec = &model.spec;
    let main = spec.main_stack();
    let mut notes = vec![
        "norm gains are folded into the matrices after the norms; biases and the norms' divisors are left out".to_owned(),
    ];
    if main
        .blocks()
        .iter()
        .any(|block| block.attention().is_some_and(|own| own.rope.is_some()))
    {
        notes.push(
            "rotary positions are left out: QK circuits are those of a distance of 0".to_owned(),
        );
    }
    let between = match vocabulary(model, pace) {
        Ok(found) => {
            if found.is_none() {
                notes.push("no copying score: it needs an embedding and an unembedding of the residual's width".to_owned());
            }
            found
        }
        Err(e) => return Err(e),
    };
    let n_layers = main.n_layers();
    let (mut heads, mut compositions) = (Vec::new(), Vec::new());
    let mut earlier: Vec<HeadMaps> = Vec::new();
    for layer_idx in 0..n_layers {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        tell(layer_idx, n_layers);
        let maps = maps_of(model, main.stack, layer_idx)?;
        let found: Vec<Circuit> = maps
            .par_iter()
            .map(|maps| circuit(maps, between.as_deref()))
            .collect();
        heads.extend(found);
        let later: Vec<&HeadMaps> = maps.iter().filter(|maps| wants(maps.place)).collect();
        let pairs: Vec<(&HeadMaps, &HeadMaps)> = later
            .iter()
            .flat_map(|to| earlier.iter().map(move |from| (from, *to)))
            .collect();
        let scores: Vec<Vec<Composition>> = pairs
            .par_iter()
            .map(|(from, to)| {
                // Shared keys and values of an earlier layer do not see the layers in between.
                let is_before = from.place.layer_idx < Some(to.kv_layer_idx);
                let meets = |into: &Into| *into == Into::Queries || is_before;
                let all = Into::ALL.into_iter().filter(meets);
                all.map(|into| composition(from, to, into)).collect()
            })
            .collect();
        compositions.extend(scores.into_iter().flatten());
        earlier.extend(maps);
    }
    compositions.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(Circuits {
        heads,
        compositions,
        notes,
    })
}

/// Σ over tokens of embedding · unembedding, with the gain of the final norm folded in. // [d_model, d_model]
fn vocabulary(model: &Model, pace: &dyn Pace) -> Result<Option<Vec<f32>>> {
    let spec = &model.spec;
    let (main, d) = (spec.main_stack(), spec.d_model);
    let Some(head) = spec.head.as_ref().filter(|head| head.labels.is_none()) else {
        return Ok(None);
    };
    let table = &main.embed.tokens;
    let meets = main.embed.projection.is_none()
        && head.transform.is_none()
        && table.width == d
        && head.unembed.n_in == d;
    if !meets {
        return Ok(None);
    }
    let tensors = &model.checkpoint.tensors;
    let fold = Fold::read(model, &main.final_norm)?;
    let n_tokens = table.n_rows.min(head.unembed.n_out());
    let stored = tensors.expect(&table.tensor, &[table.n_rows, table.width])?;
    let mut sum = vec![0.0; d * d];
    for start in (0..n_tokens).step_by(TOKENS_AT_ONCE) {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        let rows = start..(start + TOKENS_AT_ONCE).min(n_tokens);
        let embedded = stored.widen_rows(rows.clone())?;
        let embedded = round_rows(embedded, d, main.embed.rounded);
        let unembed = linear_rows_on_host(tensors, &head.unembed, rows.clone(), pace)?;
        let mut unembed = unembed.widened().into_owned();
        fold.fold_into(&mut unembed, d);
        let embedded = Matrix::row_major(&embedded, rows.len(), d).transposed();
        let unembed = Matrix::row_major(&unembed, rows.len(), d);
        let mut part = vec![0.0; d * d];
        let mut to = MatrixMut::new(&mut part, d, d, d);
        product(&mut to, embedded, unembed, false, Threads::Pool);
        sum.iter_mut().zip(&part).for_each(|(sum, p)| *sum += p);
    }
    Ok(Some(sum))
}

/// left · right, in f32. // [n, k] · [k, m]
fn times(left: Matrix<'_>, right: Matrix<'_>, n: usize, m: usize) -> Vec<f32> {
    let mut out = vec![0.0; n * m];
    product(
        &mut MatrixMut::new(&mut out, n, m, m),
        left,
        right,
        false,
        Threads::One,
    );
    out
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Circuits of one head; `between` is the sum of embedding · unembedding over tokens.
fn circuit(maps: &HeadMaps, between: Option<&[f32]>) -> Circuit {
    let (d, n) = (maps.d_model, maps.d_value);
    let lambdas = between.and_then(|between| {
        let v = Matrix::row_major(&maps.v, n, d);
        let o = Matrix::row_major(&maps.o, n, d).transposed();
        let read = times(v, Matrix::row_major(between, d, d), n, d);
        let core = times(Matrix::row_major(&read, n, d), o, n, n);
        eigenvalues(&wide(&core), n)
    });
    let sizes = |all: &[super::eigen::Complex]| all.iter().map(|z| z.abs()).sum::<f64>();
    let copying = lambdas.as_ref().and_then(|all| {
        let size = sizes(all);
        (size > 0.0).then(|| all.iter().map(|z| z.re).sum::<f64>() / size)
    });
    let positive = lambdas.as_ref().map(|all| {
        let positive = all.iter().filter(|z| z.re > 0.0).count();
        positive as f64 / all.len().max(1) as f64
    });
    Circuit {
        place: maps.place,
        copying,
        positive_share: positive.filter(|_| copying.is_some()),
        qk: ranks(&maps.gram_q, &maps.gram_k, maps.d_head),
        ov: ranks(&maps.gram_o, &maps.gram_v, n),
    }
}

/// Ranks of AᵀB from the Gram matrices AAᵀ and BBᵀ, whose product has the squared singular values as eigenvalues.
fn ranks(a: &[f64], b: &[f64], n: usize) -> Ranks {
    let l = factor(a, n);
    // Lᵀ B L is symmetric and has the same eigenvalues.
    let mut right = vec![0.0; n * n];
    for i in 0..n {
        for k in 0..n {
            for j in 0..=k {
                right[i * n + j] += b[i * n + k] * l[k * n + j];
            }
        }
    }
    let mut core = vec![0.0; n * n];
    for k in 0..n {
        for i in 0..=k {
            for j in 0..n {
                core[i * n + j] += l[k * n + i] * right[k * n + j];
            }
        }
    }
    let squares = symmetric_eigenvalues(&core, n);
    let sigma: Vec<f64> = squares.iter().map(|s| s.max(0.0).sqrt()).collect();
    let (sum, most) = sigma
        .iter()
        .fold((0.0, 0.0f64), |(sum, most), s| (sum + s, most.max(*s)));
    let shares = sigma.iter().map(|s| s / sum).filter(|p| *p > 0.0);
    let entropy: f64 = shares.map(|p| -p * p.ln()).sum();
    Ranks {
        effective: entropy.exp(),
        stable: sigma.iter().map(|s| s * s).sum::<f64>() / (most * most),
    }
}

/// Composition score of two heads.
pub(super) fn composition(from: &HeadMaps, to: &HeadMaps, into: Into) -> Composition {
    // Both circuits are products of a tall and a wide matrix; only the inner parts are multiplied.
    let (read, outer, n) = match into {
        Into::Queries => (&to.q, &to.factor_k, to.d_head),
        Into::Keys => (&to.k, &to.factor_q, to.d_head),
        Into::Values => (&to.v, &to.factor_o, to.d_value),
    };
    let (d, m) = (to.d_model, from.d_value);
    let read = Matrix::row_major(read, n, d);
    let write = Matrix::row_major(&from.o, m, d).transposed();
    let met = times(read, write, n, m); // [n, m]
    let left = Matrix::row_major(outer, n, n).transposed();
    let outside = times(left, Matrix::row_major(&met, n, m), n, m);
    let right = Matrix::row_major(&from.factor_v, m, m);
    let whole = times(Matrix::row_major(&outside, n, m), right, n, m);
    let norm = wide(&whole).iter().map(|v| v * v).sum::<f64>().sqrt();
    let own = match into {
        Into::Values => to.ov_norm,
        _ => to.qk_norm,
    };
    Composition {
        from: from.place,
        to: to.place,
        into,
        score: norm / (own * from.ov_norm) - 1.0 / (d as f64).sqrt(),
    }
}
