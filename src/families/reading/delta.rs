//! Layers of the gated delta rule: the configuration keys that describe them, and their tensor names.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::error::Result;
use attnscope_compute::kernels::recurrent::{DeltaRule, GateOrder, NormGate};
use attnscope_compute::ops::Activation;
use attnscope_spec::LinearSource;
use attnscope_spec::mixers::{DeltaRuleSpec, GatedNormSource, ShortConvolution};

use super::hybrid::{check_divides, split};
use super::llama_like::RMS;
use super::{activation_named, linear};

/// How the maps of a layer are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaStore {
    /// Two tensors, each by key head: queries, keys, values and gates in one, strengths and steps in the other.
    ByKeyHead,
    /// Queries, keys and values in one tensor; gates, strengths and steps in one each.
    ByKind,
    /// Everything in one tensor: queries, keys, values, gates, strengths and steps.
    Whole,
    /// Each map in its own tensor.
    Apart,
}

/// The keys of a family.
#[derive(Debug, Clone, Copy)]
pub struct DeltaKeys {
    pub store: DeltaStore,
    /// Sizes of absent keys: key heads, their width, value heads, their width.
    pub sizes: [usize; 4],
    /// The epsilon of the norm behind the rule, if it is not that of the other norms.
    pub eps: Option<f64>,
    /// The key that doubles the strength, with its default.
    pub doubles: Option<(&'static str, bool)>,
}

impl DeltaKeys {
    /// Those of Qwen3-Next.
    pub const QWEN: Self = Self {
        store: DeltaStore::ByKeyHead,
        sizes: [16, 128, 32, 128],
        eps: None,
        doubles: None,
    };

    /// Reads the keys.
    ///
    /// # Errors
    /// When a value is impossible.
    pub fn read(self, reader: &mut Reader<'_>, d_model: usize) -> Result<Delta> {
        let mut size = |knob, key: &str, default| {
            let origin = Origin::Default(key.to_owned());
            reader.size_or(knob, key, default, origin)
        };
        let [n_key_heads, d_key, n_value_heads, d_value] = self.sizes;
        let mut heads = DeltaRule {
            n_key_heads: size("mixer_key_heads", "linear_num_key_heads", n_key_heads)?,
            d_key: size("mixer_key_width", "linear_key_head_dim", d_key)?,
            n_value_heads: size("mixer_value_heads", "linear_num_value_heads", n_value_heads)?,
            d_value: size("mixer_value_width", "linear_value_head_dim", d_value)?,
            by_channel: false,
            is_tiled: false,
        };
        let n_tokens = size("conv_width", "linear_conv_kernel_dim", 4)?;
        // Files of llama.cpp have another order of heads.
        heads.is_tiled = reader.flag_quietly("linear_value_heads_are_tiled")?;
        let key = "linear_num_key_heads";
        check_divides(reader, key, heads.n_key_heads, heads.n_value_heads)?;
        let doubles = match self.doubles {
            Some((key, default)) => reader.flag_or("mixer_doubles_strength", key, default)?,
            None => false,
        };
        let eps = match self.eps {
            Some(eps) => Some(eps),
            None => reader.value("rms_norm_eps").and_then(|eps| eps.as_f64()),
        };
        Ok(Delta {
            store: self.store,
            heads,
            d_model,
            n_tokens,
            activation: {
                let name = reader.value("hidden_act").and_then(|name| name.as_str());
                activation_named(reader, "hidden_act", name.unwrap_or("silu"))?
            },
            eps: eps.unwrap_or(RMS.eps),
            strength: if doubles { 2.0 } else { 1.0 },
        })
    }
}

/// What all layers of the delta rule share.
pub struct Delta {
    store: DeltaStore,
    heads: DeltaRule,
    d_model: usize,
    n_tokens: usize,
    activation: Activation,
    eps: f64,
    strength: f32,
}

impl Delta {
    /// The layer stored under `at`.
    pub fn at(&self, tensors: &Tensors, at: &str) -> DeltaRuleSpec {
        let heads = self.heads;
        let (n_keys, n_values) = (
            heads.n_key_heads * heads.d_key,
            heads.n_value_heads * heads.d_value,
        );
        let [q, k, v, gate, strength, steps] = self.maps(at, n_keys, n_values);
        let [norm, o] = match self.store {
            DeltaStore::Apart => ["o_norm", "o_proj"],
            DeltaStore::ByKeyHead | DeltaStore::ByKind | DeltaStore::Whole => ["norm", "out_proj"],
        };
        DeltaRuleSpec {
            q,
            k,
            v,
            gate,
            narrow_gate: None,
            strength,
            steps,
            narrow_steps: None,
            convolution: ShortConvolution {
                kernels: kernels(tensors, at, [n_keys, n_keys, n_values]),
                bias: None,
                n_channels: 2 * n_keys + n_values,
                n_tokens: self.n_tokens,
                over_grid: false,
            },
            activation: self.activation,
            heads,
            strength_scale: self.strength,
            log_decay: format!("{at}.A_log"),
            log_decay_shape: vec![heads.n_value_heads],
            log_bound: None,
            step_bias: format!("{at}.dt_bias"),
            norm: GatedNormSource {
                gain: format!("{at}.{norm}.weight"),
                n_stored: heads.d_value,
                order: GateOrder::NormFirst,
                gate: NormGate::Silu,
                width: heads.d_value,
                eps: self.eps as f32,
            },
            o: linear(&format!("{at}.{o}"), n_values, self.d_model, false),
        }
    }

    /// Queries, keys, values, gates, strengths and steps.
    fn maps(&self, at: &str, n_keys: usize, n_values: usize) -> [LinearSource; 6] {
        let heads = self.heads;
        let n_heads = heads.n_value_heads;
        let map = |name: &str, n_out| linear(&format!("{at}.{name}"), self.d_model, n_out, false);
        match self.store {
            DeltaStore::ByKeyHead => {
                let per_key = n_heads / heads.n_key_heads;
                let values = per_key * heads.d_value;
                // Per key head: its query, its key, its values, their gates.
                let widths = [heads.d_key, heads.d_key, values, values];
                let n_out = widths.iter().sum::<usize>() * heads.n_key_heads;
                let [q, k, v, gate] = split(&map("in_proj_qkvz", n_out), widths);
                let [strength, steps] = split(&map("in_proj_ba", 2 * n_heads), [per_key; 2]);
                [q, k, v, gate, strength, steps]
            }
            DeltaStore::ByKind => {
                let fused = map("in_proj_qkv", 2 * n_keys + n_values);
                let [q, k, v] = split(&fused, [n_keys, n_keys, n_values]);
                let gate = map("in_proj_z", n_values);
                [
                    q,
                    k,
                    v,
                    gate,
                    map("in_proj_b", n_heads),
                    map("in_proj_a", n_heads),
                ]
            }
            DeltaStore::Whole => {
                let widths = [n_keys, n_keys, n_values, n_values, n_heads, n_heads];
                split(&map("in_proj", widths.iter().sum()), widths)
            }
            DeltaStore::Apart => [
                map("q_proj", n_keys),
                map("k_proj", n_keys),
                map("v_proj", n_values),
                map("g_proj", n_values),
                map("b_proj", n_heads),
                map("a_proj", n_heads),
            ],
        }
    }
}

/// The kernel of the convolution over queries, keys and values: one tensor, or three, whose rows some versions of transformers divide
/// evenly.
pub fn kernels(tensors: &Tensors, at: &str, widths: [usize; 3]) -> Vec<(String, usize)> {
    let names = ["q_conv1d", "k_conv1d", "v_conv1d"].map(|name| format!("{at}.{name}.weight"));
    let n_channels: usize = widths.iter().sum();
    if !tensors.contains(&names[0]) {
        return vec![(format!("{at}.conv1d.weight"), n_channels)];
    }
    let stored = |name: &String| tensors.info(name)?.shape.first().copied();
    let found: Option<Vec<usize>> = names.iter().map(stored).collect();
    let found = found.filter(|found| found.iter().sum::<usize>() == n_channels);
    let found = found.unwrap_or(widths.to_vec());
    names.into_iter().zip(found).collect()
}
