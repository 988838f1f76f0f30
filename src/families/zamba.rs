//! Zamba: the selective scan of Mamba in every layer, made from heads of channels; before some, a transformer block that all share.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{ScanHead, SelectiveScanSpec, ShortConvolution};
use attnscope_spec::{LinearSource, ModelSpec, Part, TokenMixer};

use super::Family;
use super::reading::hybrid::check_divides;
use super::reading::{activation, activation_named, check_groups, linear};
use super::zamba2::{Layers, Shared, attention, hybrid_layers};

pub const FAMILY: Family = Family::own("zamba", "Zamba", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let n_layers = reader.layers("num_hidden_layers")?;
    let attends = hybrid_layers(reader, n_layers)?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let context = "max_position_embeddings";
    let n_ctx = reader.size_or("n_ctx", context, 4096, default(context))?;
    let scan = Scan::read(reader, d_model)?;
    let shared = read_shared(reader, d_model, &attends)?;
    let layers = Layers {
        family: FAMILY.model_type,
        n_ctx,
        attends,
        shared,
        mixer: &|at: &str| TokenMixer::SelectiveScan(Box::new(scan.at(at))),
    };
    layers.assemble(checkpoint, reader)
}

/// Reads the transformer block that all hybrid layers share.
fn read_shared(reader: &mut Reader<'_>, d_model: usize, attends: &[bool]) -> Result<Shared> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let (heads, kv_heads) = ("num_attention_heads", "num_key_value_heads");
    let n_heads = reader.size_or("n_heads", heads, 16, default(heads))?;
    let n_kv_heads = reader.size_or("n_kv_heads", kv_heads, 16, default(kv_heads))?;
    check_groups(reader, n_heads, n_kv_heads, kv_heads)?;
    const WIDTH: &str = "attention_hidden_size";
    let wide = 2 * d_model;
    if let Some(found) = reader
        .value(WIDTH)
        .filter(|found| found.as_u64() != Some(wide as u64))
    {
        let problem = format!("expected {wide}, the residual and the embedding, found {found}");
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let origin = Origin::Derived("2 · d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "attention_head_dim", wide / n_heads, origin)?;
    reader.note("positions", "none", Origin::Family);
    let mlp = "intermediate_size";
    Ok(Shared {
        name: "shared_transf",
        attention: attention(reader, (n_heads, n_kv_heads, d_head)),
        d_model,
        d_mlp: reader.size_or("d_mlp", mlp, 14848, default(mlp))?,
        activation: activation(reader, "hidden_act", "gelu")?,
        has_bias: false,
        rank: None,
        adapts_attention: false,
        layers: (0..attends.len())
            .filter(|idx| attends[*idx])
            .take(1)
            .collect(),
    })
}

/// Settings that all Mamba layers share.
struct Scan {
    d_model: usize,
    d_inner: usize,
    n_heads: usize,
    d_state: usize,
    d_steps: usize,
    n_tokens: usize,
    has_kernel_bias: bool,
    has_bias: bool,
    activation: Activation,
}

impl Scan {
    fn read(reader: &mut Reader<'_>, d_model: usize) -> Result<Self> {
        const RANK: &str = "mamba_dt_rank";
        let default = |key: &str| Origin::Default(key.to_owned());
        let (expand, heads) = ("mamba_expand", "n_mamba_heads");
        let expand = reader.size_or("mixer_expansion", expand, 2, default(expand))?;
        let n_heads = reader.size_or("mixer_heads", heads, 2, default(heads))?;
        check_divides(reader, heads, n_heads, expand * d_model)?;
        let narrow = d_model.div_ceil(16);
        let d_steps = if reader.is_word("mixer_step_width", RANK, "auto") {
            narrow
        } else {
            let sixteenth = Origin::Derived("d_model / 16".to_owned());
            reader.size_or("mixer_step_width", RANK, narrow, sixteenth)?
        };
        let (state, conv) = ("mamba_d_state", "mamba_d_conv");
        let act = reader.word_or("mixer_activation", "hidden_mamba_act", "silu")?;
        Ok(Self {
            d_model,
            d_inner: expand * d_model,
            n_heads,
            d_state: reader.size_or("d_state", state, 16, default(state))?,
            d_steps,
            n_tokens: reader.size_or("conv_width", conv, 4, default(conv))?,
            has_kernel_bias: reader.flag_or("conv_bias", "mamba_conv_bias", true)?,
            has_bias: reader.flag_or("mixer_bias", "mamba_proj_bias", false)?,
            activation: activation_named(reader, "hidden_mamba_act", &act)?,
        })
    }

    fn at(&self, at: &str) -> SelectiveScanSpec {
        let (n, n_heads, d_state) = (self.d_inner, self.n_heads, self.d_state);
        let n_each = n / n_heads;
        let name = |name: &str| format!("{at}.{name}");
        let both = linear(&name("in_proj"), self.d_model, 2 * n, self.has_bias);
        // The input and the gate of a channel stand one after the other.
        let half = |offset| {
            let group = 2;
            both.clone().part(Part {
                group,
                offset,
                len: 1,
            })
        };
        let group = self.d_steps + 2 * d_state;
        let head = |head_idx: usize| {
            let along = |offset, len| {
                let whole = LinearSource::whole(name("x_proj_weight"), None, n_each, group);
                let part = Part { group, offset, len };
                (whole.slab(head_idx, n_heads).part(part), None)
            };
            let bias = Some(name("dt_proj_bias"));
            let steps = LinearSource::whole(name("dt_proj_weight"), bias, self.d_steps, n_each);
            ScanHead {
                narrow_steps: along(0, self.d_steps),
                b: along(self.d_steps, d_state),
                c: along(self.d_steps + d_state, d_state),
                steps: steps.slab(head_idx, n_heads),
            }
        };
        SelectiveScanSpec {
            x: half(0),
            gate: half(1),
            convolution: ShortConvolution::whole(
                name("conv1d.weight"),
                self.has_kernel_bias.then(|| name("conv1d.bias")),
                n,
                self.n_tokens,
            ),
            activation: self.activation,
            heads: (0..n_heads).map(head).collect(),
            is_stored_by_head: true,
            log_decay: name("A_log"),
            skip: name("D"),
            d_state,
            o: linear(&name("out_proj"), n, self.d_model, self.has_bias),
        }
    }
}
