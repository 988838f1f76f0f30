//! What every stored tensor of a model is for: the same words for every family, so that ports are compared under other names.

use std::ops::Range;

use rayon::prelude::*;

use crate::checkpoint::Tensors;
use crate::error::Result;
use crate::model::{
    BlockSpec, FeedForward, LinearSource, MlpSpec, ModelSpec, NormSource, PositionTable,
    ProjectionSpec, Stack, StackSpec, TableSource, linear_on_host,
};
use crate::pace::Pace;
use crate::place::Place;

/// How the outputs of a map, or the values of a vector, are divided among heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Division {
    /// Not at all.
    None,
    /// Outputs stand head after head, and rotate by position: queries and keys.
    Rotating(Heads),
    /// Outputs stand head after head: values.
    Outputs(Heads),
    /// Inputs stand head after head: the output map.
    Inputs(Heads),
}

/// Heads of one width, and the part of each that rotates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heads {
    pub n: usize,
    pub width: usize,
    /// First dimension that rotates, and how many do; 0 where none does.
    pub rotary: (usize, usize),
}

/// Where the numbers of a role are stored.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The matrix of an affine map.
    Matrix(LinearSource),
    /// The bias of an affine map.
    Bias(LinearSource),
    /// Rows that are looked up.
    Table(TableSource),
    Vector {
        tensor: String,
        shape: Vec<usize>,
    },
}

/// One use of a stored tensor, or of a part of it.
#[derive(Debug, Clone)]
pub(super) struct Role {
    /// What it is for: `L3.attn.q`, `encoder.L0.mlp.up.bias`, `embed.tokens`.
    pub key: String,
    pub source: Source,
    pub division: Division,
}

impl Role {
    /// The stored tensor.
    pub fn tensor(&self) -> &str {
        match &self.source {
            Source::Matrix(linear) => &linear.weight,
            Source::Bias(linear) => linear.bias.as_deref().unwrap_or_default(),
            Source::Table(table) => &table.tensor,
            Source::Vector { tensor, .. } => tensor,
        }
    }

    /// Outputs and inputs of the matrix; a vector has one input.
    pub fn shape(&self) -> (usize, usize) {
        match &self.source {
            Source::Matrix(linear) => (linear.n_out(), linear.n_in),
            Source::Bias(linear) => (linear.n_out(), 1),
            Source::Table(table) => (table.n_rows, table.width),
            Source::Vector { shape, .. } => (shape.iter().product(), 1),
        }
    }

    /// Whether two roles read their tensors in one way, so that the tensors can be compared as they are stored.
    pub fn reads_as(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (Source::Matrix(a), Source::Matrix(b)) => layout(a) == layout(b),
            (Source::Bias(a), Source::Bias(b)) => {
                (a.part, a.slab, a.n_stored_out) == (b.part, b.slab, b.n_stored_out)
            }
            (Source::Table(a), Source::Table(b)) => (a.n_rows, a.width) == (b.n_rows, b.width),
            (Source::Vector { shape: a, .. }, Source::Vector { shape: b, .. }) => a == b,
            _ => false,
        }
    }

    /// The numbers as they are meant. // [n_out, n_in]
    ///
    /// # Errors
    /// When the tensor cannot be read.
    pub fn read(&self, tensors: &Tensors, pace: &dyn Pace) -> Result<Vec<f32>> {
        match &self.source {
            Source::Matrix(linear) => {
                let unbiased = LinearSource {
                    bias: None,
                    ..linear.clone()
                };
                let host = linear_on_host(tensors, &unbiased, pace)?;
                let values = host.widened();
                Ok(if host.is_input_major {
                    transposed(&values, host.n_in, host.n_out)
                } else {
                    values.into_owned()
                })
            }
            Source::Bias(linear) => {
                let name = linear.bias.as_deref().unwrap_or_default();
                let view = tensors.expect(name, &linear.stored_bias_shape())?;
                let stored = match linear.slab {
                    Some(slab) => view.widen_rows(slab.idx..slab.idx + 1)?,
                    None => view.widen()?,
                };
                let part = linear.part;
                if linear.bias_is_of_part {
                    return Ok(stored.into_owned());
                }
                let groups = stored.chunks(part.group);
                Ok(groups
                    .flat_map(|group| group[part.offset..part.offset + part.len].iter().copied())
                    .collect())
            }
            Source::Table(table) => {
                let view = tensors.expect(&table.tensor, &[table.n_rows, table.width])?;
                Ok(view.widen()?.into_owned())
            }
            Source::Vector { tensor, shape } => {
                Ok(tensors.expect(tensor, shape)?.widen()?.into_owned())
            }
        }
    }

    /// The first rows of a matrix that is read row by row, as it is stored: [`SAMPLED`] outputs at most, or where it is stored as
    /// [n_in, n_out], as many inputs. `None` for what is stored in other ways.
    ///
    /// # Errors
    /// When the tensor cannot be read.
    pub fn top(&self, tensors: &Tensors) -> Result<Option<Vec<f32>>> {
        let (name, shape) = match &self.source {
            Source::Matrix(linear) if linear.slab.is_none() => {
                (&linear.weight, linear.stored_shape())
            }
            Source::Table(table) => (&table.tensor, vec![table.n_rows, table.width]),
            _ => return Ok(None),
        };
        let view = tensors.expect(name, &shape)?;
        if !view.is_row_wise() {
            return Ok(None);
        }
        let read = |rows: Range<usize>| -> Result<Vec<f32>> {
            let mut values = vec![0.0; rows.len() * shape[1]];
            view.widen_rows_into(rows, &mut values)?;
            Ok(values)
        };
        Ok(Some(match &self.source {
            Source::Matrix(linear) if linear.is_input_major => {
                let (part, rows) = (linear.part, read(0..SAMPLED.min(shape[0]))?);
                let groups = rows.chunks(part.group);
                let chosen = groups.flat_map(|group| &group[part.offset..part.offset + part.len]);
                chosen.copied().collect()
            }
            Source::Matrix(linear) => {
                let part = linear.part;
                read(part.offset..part.offset + part.len.min(SAMPLED))?
            }
            _ => read(0..SAMPLED.min(shape[0]))?,
        }))
    }
}

/// Outputs or inputs by which most pairs of matrices are told apart.
pub(super) const SAMPLED: usize = 16;

/// What of a map's source says how its tensor is laid out.
fn layout(linear: &LinearSource) -> impl PartialEq + use<> {
    (
        linear.part,
        linear.slab,
        linear.stored_shape(),
        linear.is_input_major,
        linear.is_transposed,
    )
}

/// Columns as rows. // [n_rows, width] → [width, n_rows]
pub(super) fn transposed(values: &[f32], n_rows: usize, width: usize) -> Vec<f32> {
    let mut to = vec![0.0; values.len()];
    if n_rows == 0 || width == 0 {
        return to;
    }
    // Square tiles: lines of memory are used whole on both sides.
    to.par_chunks_mut(TILE * n_rows)
        .enumerate()
        .for_each(|(nth, to)| {
            let first = nth * TILE;
            for row in (0..n_rows).step_by(TILE) {
                let rows = row..(row + TILE).min(n_rows);
                for (column, to) in to.chunks_mut(n_rows).enumerate() {
                    for row in rows.clone() {
                        to[row] = values[row * width + first + column];
                    }
                }
            }
        });
    to
}

/// Rows and columns that are exchanged at a time.
const TILE: usize = 32;

/// Every role of a model, in the order of execution.
pub(super) fn roles(spec: &ModelSpec) -> Vec<Role> {
    let mut list = List::default();
    for stack in &spec.stacks {
        list.embedding(stack);
        for (layer_idx, block) in stack.blocks().iter().enumerate() {
            list.block(stack.stack, layer_idx, block);
        }
        if let Some(network) = stack.recurrence() {
            let name = prefix(stack.stack, None);
            for (idx, linear) in network.linears().into_iter().enumerate() {
                list.linear(format!("{name}map.{idx}"), linear, Division::None);
            }
        }
        let name = prefix(stack.stack, None);
        list.norm(
            &format!("{name}final_norm"),
            stack.final_norm.as_ref(),
            None,
        );
    }
    if let Some(head) = &spec.head {
        if let Some(transform) = &head.transform {
            list.linear("head.dense".to_owned(), &transform.dense, Division::None);
            list.norm("head.norm", transform.norm.as_ref(), None);
        }
        list.linear("head.unembed".to_owned(), &head.unembed, Division::None);
        list.vector("head.bias".to_owned(), head.extra_bias.as_ref(), || {
            vec![head.unembed.n_out()]
        });
    }
    list.roles
}

fn prefix(stack: Stack, layer_idx: Option<usize>) -> String {
    let place = Place {
        stack: Some(stack),
        layer_idx,
        ..Place::MODEL
    };
    match place.to_string().as_str() {
        "" => String::new(),
        place => format!("{place}."),
    }
}

#[derive(Default)]
struct List {
    roles: Vec<Role>,
}

impl List {
    fn push(&mut self, key: String, source: Source, division: Division) {
        self.roles.push(Role {
            key,
            source,
            division,
        });
    }

    fn linear(&mut self, key: String, linear: &LinearSource, division: Division) {
        if linear.bias.is_some() {
            // The bias of an output map is no head's own.
            let of_bias = match division {
                Division::Inputs(_) => Division::None,
                other => other,
            };
            let source = Source::Bias(linear.clone());
            self.push(format!("{key}.bias"), source, of_bias);
        }
        self.push(key, Source::Matrix(linear.clone()), division);
    }

    fn norm(&mut self, key: &str, norm: Option<&NormSource>, heads: Option<Heads>) {
        let Some(norm) = norm else { return };
        let division = heads
            .filter(|heads| norm.width == heads.width || norm.width == heads.n * heads.width)
            .map_or(Division::None, |heads| {
                Division::Rotating(Heads {
                    n: norm.width / heads.width,
                    ..heads
                })
            });
        let gains = norm.gain.iter().map(|name| ("gain", name));
        let bias = norm.bias.iter().map(|name| ("bias", name));
        for (nth, (what, tensor)) in gains.chain(bias).enumerate() {
            let source = Source::Vector {
                tensor: tensor.clone(),
                shape: norm.gain_shape.clone(),
            };
            let part = if norm.gain.len() > 1 {
                format!(".{nth}")
            } else {
                String::new()
            };
            self.push(format!("{key}.{what}{part}"), source, division);
        }
    }

    fn vector(&mut self, key: String, tensor: Option<&String>, shape: impl Fn() -> Vec<usize>) {
        if let Some(tensor) = tensor {
            let source = Source::Vector {
                tensor: tensor.clone(),
                shape: shape(),
            };
            self.push(key, source, Division::None);
        }
    }

    fn table(&mut self, key: String, table: Option<&TableSource>) {
        if let Some(table) = table {
            self.push(key, Source::Table(table.clone()), Division::None);
        }
    }

    fn embedding(&mut self, stack: &StackSpec) {
        let (embed, name) = (&stack.embed, prefix(stack.stack, None));
        self.table(format!("{name}embed.tokens"), Some(&embed.tokens));
        if let Some(PositionTable::Stored(table)) = &embed.positions {
            self.table(format!("{name}embed.positions"), Some(table));
        }
        self.table(format!("{name}embed.types"), embed.token_types.as_ref());
        self.norm(&format!("{name}embed.norm"), embed.norm.as_ref(), None);
        if let Some(linear) = &embed.projection {
            self.linear(format!("{name}embed.projection"), linear, Division::None);
        }
        self.table(format!("{name}bias"), stack.bucket_values.as_ref());
    }

    fn block(&mut self, stack: Stack, layer_idx: usize, block: &BlockSpec) {
        let name = prefix(stack, Some(layer_idx));
        self.norm(&format!("{name}attn_pre"), block.attn_pre.as_ref(), None);
        if let Some(own) = block.own() {
            self.attention(&format!("{name}attn"), &own.attention, &own.projections);
        }
        if let Some(convolution) = block.convolution() {
            let maps = ["b", "c", "x", "o"].into_iter().zip(convolution.linears());
            for (what, linear) in maps {
                self.linear(format!("{name}conv.{what}"), linear, Division::None);
            }
            let kernel = Some(&convolution.kernel);
            self.vector(format!("{name}conv.kernel"), kernel, || {
                convolution.kernel_shape()
            });
            let bias = convolution.bias.as_ref();
            self.vector(format!("{name}conv.bias"), bias, || {
                vec![convolution.n_channels]
            });
        }
        self.norm(&format!("{name}attn_out"), block.attn_out.as_ref(), None);
        self.norm(&format!("{name}attn_post"), block.attn_post.as_ref(), None);
        if let Some(cross) = &block.cross {
            let name = prefix(Stack::Cross, Some(layer_idx));
            self.norm(&format!("{name}attn_pre"), cross.pre.as_ref(), None);
            self.attention(&format!("{name}attn"), &cross.attention, &cross.projections);
            self.norm(&format!("{name}attn_post"), cross.post.as_ref(), None);
        }
        self.norm(&format!("{name}mlp_pre"), block.mlp_pre.as_ref(), None);
        match &block.feed_forward {
            FeedForward::Dense(mlp) => self.mlp(&format!("{name}mlp"), mlp),
            FeedForward::Experts(experts) => {
                self.linear(format!("{name}router"), &experts.router, Division::None);
                self.vector(
                    format!("{name}router.choice"),
                    experts.rule.choice_bias.as_ref().map(|bias| &bias.tensor),
                    || {
                        let bias = experts.rule.choice_bias.as_ref();
                        bias.map_or(Vec::new(), |bias| bias.shape.clone())
                    },
                );
                for (idx, mlp) in experts.experts.iter().enumerate() {
                    self.mlp(&format!("{name}expert.{idx}"), mlp);
                }
                if let Some((mlp, gate)) = &experts.shared {
                    self.mlp(&format!("{name}shared"), mlp);
                    if let Some(gate) = gate {
                        self.linear(format!("{name}shared.weight"), gate, Division::None);
                    }
                }
            }
        }
        self.norm(&format!("{name}mlp_out"), block.mlp_out.as_ref(), None);
        self.norm(&format!("{name}mlp_post"), block.mlp_post.as_ref(), None);
    }

    fn attention(
        &mut self,
        name: &str,
        spec: &crate::attention::AttentionSpec,
        projections: &ProjectionSpec,
    ) {
        let rotary = spec.rope.as_ref();
        let rotary = rotary.map_or((0, 0), |rope| (rope.first, rope.d_rotary));
        let heads = |n: usize, width: usize, rotary| Heads { n, width, rotary };
        let q = heads(spec.n_heads, spec.d_head, rotary);
        let k = heads(spec.n_kv_heads, spec.d_head, rotary);
        let v = heads(spec.n_kv_heads, spec.d_value, (0, 0));
        let o = heads(spec.n_heads, spec.d_value, (0, 0));
        // Through latent vectors, a key has a part of its own and one that all heads share: only whole heads are told apart.
        let rotating = |heads: Heads, linear: &LinearSource| {
            if linear.n_out() == heads.n * heads.width {
                Division::Rotating(heads)
            } else {
                Division::None
            }
        };
        if let Some(latent) = &projections.latent {
            if let Some((linear, norm)) = &latent.q {
                self.linear(format!("{name}.q_latent"), linear, Division::None);
                self.norm(&format!("{name}.q_latent_norm"), Some(norm), None);
            }
            self.linear(format!("{name}.kv_latent"), &latent.kv, Division::None);
            self.norm(
                &format!("{name}.kv_latent_norm"),
                Some(&latent.kv_norm),
                None,
            );
            self.linear(
                format!("{name}.shared_key"),
                &latent.shared_key,
                Division::None,
            );
        }
        self.linear(
            format!("{name}.q"),
            &projections.q,
            rotating(q, &projections.q),
        );
        self.linear(
            format!("{name}.k"),
            &projections.k,
            rotating(k, &projections.k),
        );
        self.linear(format!("{name}.v"), &projections.v, Division::Outputs(v));
        self.norm(
            &format!("{name}.q_norm"),
            projections.q_norm.as_ref(),
            Some(q),
        );
        self.norm(
            &format!("{name}.k_norm"),
            projections.k_norm.as_ref(),
            Some(k),
        );
        self.table(format!("{name}.bias"), projections.bucket_values.as_ref());
        if let Some(relative) = &projections.relative {
            self.table(format!("{name}.relative"), Some(&relative.embeddings));
            self.norm(
                &format!("{name}.relative_norm"),
                relative.norm.as_ref(),
                None,
            );
            for (what, linear) in [("key", &relative.key), ("query", &relative.query)] {
                if let Some(linear) = linear {
                    let key = format!("{name}.relative_{what}");
                    self.linear(key, linear, Division::None);
                }
            }
        }
        self.vector(format!("{name}.sinks"), projections.sinks.as_ref(), || {
            vec![spec.n_heads]
        });
        if projections.sinks.is_some()
            && let Some(last) = self.roles.last_mut()
        {
            last.division = Division::Outputs(heads(spec.n_heads, 1, (0, 0)));
        }
        self.linear(format!("{name}.o"), &projections.o, Division::Inputs(o));
    }

    fn mlp(&mut self, name: &str, mlp: &MlpSpec) {
        if let Some(gate) = &mlp.gate {
            self.linear(format!("{name}.gate"), gate, Division::None);
        }
        self.linear(format!("{name}.up"), &mlp.up, Division::None);
        self.linear(format!("{name}.down"), &mlp.down, Division::None);
        if let Some(learned) = &mlp.learned {
            let parts = ["above", "below", "slope", "limit"].into_iter();
            for (part, (tensor, shape)) in parts.zip(learned.tensors()) {
                let key = format!("{name}.activation.{part}");
                self.vector(key, Some(tensor), || shape.clone());
            }
        }
    }
}
