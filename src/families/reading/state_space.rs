//! The Mamba-2 mixer, as several families configure and store it.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::recurrent::{GateOrder, NormGate};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{GatedNormSource, ShortConvolution, StateSpaceSpec};

use super::hybrid::{check_divides, number, split};
use super::linear;

/// Sizes and switches of the mixer, for all layers.
#[derive(Debug, Clone)]
pub struct StateSpaceSizes {
    pub d_model: usize,
    pub n_heads: usize,
    pub d_head: usize,
    pub n_groups: usize,
    pub d_state: usize,
    pub n_tokens: usize,
    pub has_kernel_bias: bool,
    /// For the maps into and out of the mixer.
    pub has_bias: [bool; 2],
    pub step_limits: [f32; 2],
    pub activation: Activation,
    pub norm: Option<NormRule>,
    /// Factors of gate, x, B, C and steps; then of input and output.
    pub factors: ([f32; 5], [f32; 2]),
}

/// The norm next to the gate.
#[derive(Debug, Clone, Copy)]
pub struct NormRule {
    pub order: GateOrder,
    /// Number of channel groups that are normalised separately.
    pub n_groups: usize,
    pub eps: f64,
}

/// The usual norm: after the gate.
impl NormRule {
    pub fn behind_gate(n_groups: usize, eps: f64) -> Self {
        Self {
            order: GateOrder::GateFirst,
            n_groups,
            eps,
        }
    }
}

impl StateSpaceSizes {
    /// Reads keys that begin with `mamba_`; `d_inner` is the total width of all heads.
    ///
    /// # Errors
    /// When a value is impossible.
    pub fn read(
        reader: &mut Reader<'_>,
        d_model: usize,
        d_inner: Option<usize>,
        activation: Activation,
    ) -> Result<Self> {
        let default = |key: &str| Origin::Default(key.to_owned());
        const N_HEADS: &str = "mamba_n_heads";
        let expand = reader.size_or(
            "mixer_expansion",
            "mamba_expand",
            2,
            default("mamba_expand"),
        )?;
        let d_inner = d_inner.unwrap_or(expand * d_model);
        let n_heads = reader.size_or("mixer_heads", N_HEADS, 128, default(N_HEADS))?;
        check_divides(reader, N_HEADS, n_heads, d_inner)?;
        let d_head = head_width(reader, n_heads, d_inner)?;
        let groups = "mamba_n_groups";
        let n_groups = reader.size_or("mixer_groups", groups, 1, default(groups))?;
        check_divides(reader, groups, n_groups, n_heads)?;
        let state = "mamba_d_state";
        let conv = "mamba_d_conv";
        let has_bias = reader.flag_or("mixer_bias", "mamba_proj_bias", false)?;
        Ok(Self {
            d_model,
            n_heads,
            d_head,
            n_groups,
            d_state: reader.size_or("d_state", state, 256, default(state))?,
            n_tokens: reader.size_or("conv_width", conv, 4, default(conv))?,
            has_kernel_bias: reader.flag_or("conv_bias", "mamba_conv_bias", true)?,
            has_bias: [has_bias; 2],
            step_limits: step_limits(reader, "time_step_limit")?,
            activation,
            norm: None,
            factors: ([1.0; 5], [1.0; 2]),
        })
    }

    /// Number of channels of all heads.
    pub fn n_inner(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// The mixer stored under `at`.
    pub fn at(&self, at: &str) -> StateSpaceSpec {
        let (n_inner, n_along) = (self.n_inner(), self.n_groups * self.d_state);
        let widths = [n_inner, n_inner, n_along, n_along, self.n_heads];
        let in_proj = format!("{at}.in_proj");
        let fused = linear(
            &in_proj,
            self.d_model,
            widths.iter().sum(),
            self.has_bias[0],
        );
        let (inner, [input, output]) = self.factors;
        let mut parts = split(&fused, widths);
        for (part, factor) in parts.iter_mut().zip(inner) {
            *part = part.clone().scaled(input, factor);
        }
        let [gate, x, b, c, steps] = parts;
        let o = linear(
            &format!("{at}.out_proj"),
            n_inner,
            self.d_model,
            self.has_bias[1],
        );
        StateSpaceSpec {
            gate,
            x,
            b,
            c,
            steps,
            convolution: ShortConvolution::whole(
                format!("{at}.conv1d.weight"),
                self.has_kernel_bias.then(|| format!("{at}.conv1d.bias")),
                n_inner + 2 * n_along,
                self.n_tokens,
            ),
            activation: self.activation,
            log_decay: format!("{at}.A_log"),
            skip: format!("{at}.D"),
            step_bias: format!("{at}.dt_bias"),
            step_limits: self.step_limits,
            n_heads: self.n_heads,
            d_head: self.d_head,
            n_groups: self.n_groups,
            d_state: self.d_state,
            norm: self.norm.map(|norm| GatedNormSource {
                gate: NormGate::Silu,
                gain: format!("{at}.norm.weight"),
                n_stored: n_inner,
                order: norm.order,
                width: n_inner / norm.n_groups.max(1),
                eps: norm.eps as f32,
            }),
            o: o.scaled(1.0, output),
        }
    }
}

/// The head width, which follows from the number of heads.
fn head_width(reader: &mut Reader<'_>, n_heads: usize, d_inner: usize) -> Result<usize> {
    const KEY: &str = "mamba_d_head";
    let width = d_inner / n_heads;
    if reader.is_word("mixer_head_width", KEY, "auto") {
        return Ok(width);
    }
    let origin = Origin::Derived("the mixer's width and heads".to_owned());
    let stated = reader.size_or("mixer_head_width", KEY, width, origin)?;
    if stated != width {
        let problem =
            format!("expected {width}, so that {n_heads} heads are {d_inner} wide, found {stated}");
        return Err(Error::config(reader.path(), KEY, problem));
    }
    Ok(width)
}

/// Reads the shortest and the longest step that a configuration allows.
///
/// # Errors
/// When the value is not a pair of numbers.
pub fn step_limits(reader: &mut Reader<'_>, key: &str) -> Result<[f32; 2]> {
    if reader.is_null(key) {
        let problem = "expected the shortest and the longest step, found null";
        return Err(Error::config(reader.path(), key, problem));
    }
    let Some(value) = reader.value(key) else {
        reader.note("step_limits", "from 0", Origin::Default(key.to_owned()));
        return Ok([0.0, f32::INFINITY]);
    };
    let both = value.as_array().map(Vec::as_slice);
    match both {
        Some([shortest, longest]) => match (number(shortest), number(longest)) {
            (Some(shortest), Some(longest)) if shortest <= longest => {
                let said = format!("{shortest} to {longest}");
                reader.note("step_limits", said, Origin::Key(key.to_owned()));
                Ok([shortest as f32, longest as f32])
            }
            _ => refused(reader, key, value),
        },
        _ => refused(reader, key, value),
    }
}

fn refused(reader: &Reader<'_>, key: &str, value: &serde_json::Value) -> Result<[f32; 2]> {
    let problem = format!("expected the shortest and the longest step, found {value}");
    Err(Error::config(reader.path(), key, problem))
}
