//! Jamba: the selective scan of Mamba in most layers, attention without positions in the others, experts in every second.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{ScanHead, SelectiveScanSpec, ShortConvolution};
use attnscope_spec::{FeedForward, ModelSpec, TokenMixer};

use super::Family;
use super::reading::experts::{USUAL, gated};
use super::reading::hybrid::{note_attending, replace, split};
use super::reading::llama_like::{
    self, BiasRule, BlockNames, ExpertsKeys, NormPlaces, RMS, Recipe, RopeLayers, Sizes,
};
use super::reading::{activation, linear, rms_norm};

pub const FAMILY: Family = Family::own("jamba", "Jamba", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: "feed_forward",
    router: "router",
    d_expert: "intermediate_size",
    normalises: BiasRule::Never,
    ..ExpertsKeys::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        rope_layers: RopeLayers::Never,
        norm_places: NormPlaces::BeforeNamed(["input_layernorm", "pre_ff_layernorm"]),
        names: BlockNames {
            final_norm: "final_layernorm",
            ..BlockNames::USUAL
        },
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    let (n_layers, d_model) = (sizes.n_layers, sizes.d_model);
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let act = activation(reader, "hidden_act", "silu")?;
    let n_experts = reader.count_or("n_experts", "num_experts", 16)?;
    let is_sparse = every(
        reader,
        n_layers,
        ["expert_layer_period", "expert_layer_offset"],
        [2, 1],
    )?;
    let experts = if n_experts > 1 && is_sparse.contains(&true) {
        reader.forget(&["n_experts"]);
        Some(EXPERTS.read(reader, tensors, n_layers)?)
    } else {
        None
    };
    let mlp = |layer_idx: usize, at: &str| match &experts {
        Some(experts) if is_sparse[layer_idx] => {
            experts.of_layer(tensors, at, d_model, (act, false))
        }
        _ => {
            let at = format!("{at}.feed_forward");
            let mlp = gated(&at, USUAL, d_model, d_mlp, act, false);
            FeedForward::Dense(Box::new(mlp))
        }
    };
    let family = FAMILY.model_type;
    let mut spec = llama_like::read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    let keys = ["attn_layer_period", "attn_layer_offset"];
    let attends = every(reader, n_layers, keys, [8, 4])?;
    let origin = Origin::Derived(keys.join(" and "));
    note_attending(reader, &attends, "selective scan (Mamba)", origin);
    let scan = Scan::read(reader, d_model, act)?;
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        TokenMixer::SelectiveScan(Box::new(scan.at(&format!("{at}.mamba"))))
    });
    Ok(spec)
}

/// Layers whose index has a given remainder modulo a given period.
fn every(
    reader: &mut Reader<'_>,
    n_layers: usize,
    [period_key, offset_key]: [&'static str; 2],
    [period, offset]: [usize; 2],
) -> Result<Vec<bool>> {
    let default = Origin::Default(period_key.to_owned());
    let period = reader.size_or(period_key, period_key, period, default)?;
    let offset = reader.count_or(offset_key, offset_key, offset)?;
    if offset >= period {
        let problem = format!("expected less than the period of {period}, found {offset}");
        return Err(Error::config(reader.path(), offset_key, problem));
    }
    Ok((0..n_layers).map(|idx| idx % period == offset).collect())
}

/// Settings that all Mamba layers share.
struct Scan {
    d_model: usize,
    d_inner: usize,
    d_state: usize,
    d_steps: usize,
    n_tokens: usize,
    has_kernel_bias: bool,
    has_bias: bool,
    activation: Activation,
    eps: f64,
}

impl Scan {
    fn read(reader: &mut Reader<'_>, d_model: usize, activation: Activation) -> Result<Self> {
        const RANK: &str = "mamba_dt_rank";
        let default = |key: &str| Origin::Default(key.to_owned());
        let expand = reader.size_or(
            "mixer_expansion",
            "mamba_expand",
            2,
            default("mamba_expand"),
        )?;
        let narrow = d_model.div_ceil(16);
        let d_steps = if reader.is_word("mixer_step_width", RANK, "auto") {
            narrow
        } else {
            let sixteenth = Origin::Derived("d_model / 16".to_owned());
            reader.size_or("mixer_step_width", RANK, narrow, sixteenth)?
        };
        let (state, conv) = ("mamba_d_state", "mamba_d_conv");
        let eps = reader.value("rms_norm_eps").and_then(|eps| eps.as_f64());
        Ok(Self {
            d_model,
            d_inner: expand * d_model,
            d_state: reader.size_or("d_state", state, 16, default(state))?,
            d_steps,
            n_tokens: reader.size_or("conv_width", conv, 4, default(conv))?,
            has_kernel_bias: reader.flag_or("conv_bias", "mamba_conv_bias", true)?,
            has_bias: reader.flag_or("mixer_bias", "mamba_proj_bias", false)?,
            activation,
            eps: eps.unwrap_or(RMS.eps),
        })
    }

    fn at(&self, at: &str) -> SelectiveScanSpec {
        let (n, d_state) = (self.d_inner, self.d_state);
        let name = |name: &str| format!("{at}.{name}");
        let [x, gate] = split(
            &linear(&name("in_proj"), self.d_model, 2 * n, self.has_bias),
            [n; 2],
        );
        let widths = [self.d_steps, d_state, d_state];
        let along = linear(&name("x_proj"), n, widths.iter().sum(), false);
        let [narrow_steps, b, c] = split(&along, widths);
        let norm = |which: &str, width| {
            rms_norm(name(&format!("{which}_layernorm.weight")), width, self.eps)
        };
        SelectiveScanSpec {
            x,
            gate,
            convolution: ShortConvolution::whole(
                name("conv1d.weight"),
                self.has_kernel_bias.then(|| name("conv1d.bias")),
                n,
                self.n_tokens,
            ),
            activation: self.activation,
            heads: vec![ScanHead {
                narrow_steps: (narrow_steps, Some(norm("dt", self.d_steps))),
                b: (b, Some(norm("b", d_state))),
                c: (c, Some(norm("c", d_state))),
                steps: linear(&name("dt_proj"), self.d_steps, n, true),
            }],
            is_stored_by_head: false,
            log_decay: name("A_log"),
            skip: name("D"),
            d_state,
            o: linear(&name("out_proj"), n, self.d_model, self.has_bias),
        }
    }
}
