//! The settings of a described model as `[set]` holds them.

use attnscope_compute::attention::{RopePrecision, Scale};
use attnscope_spec::Sines;

use super::{Described, EmbedScale, Positions, quoted};

impl Described {
    /// Every setting in the form of `[set]`; settings with uninteresting usual values are left out.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let text = |word: &str| quoted(word);
        let mut all = vec![
            ("family", text("described")),
            ("n_layers", self.n_layers.to_string()),
            ("n_heads", self.n_heads.to_string()),
            ("n_kv_heads", self.n_kv_heads.to_string()),
            ("d_head", self.d_head.to_string()),
            (
                "mask",
                text(if self.causal {
                    "causal"
                } else {
                    "bidirectional"
                }),
            ),
            (
                "block",
                text(if self.is_parallel {
                    "parallel"
                } else {
                    "serial"
                }),
            ),
            ("norm", text(if self.norm_is_rms { "rms" } else { "layer" })),
        ];
        if self.norm_adds_one {
            all.push(("norm_adds_one", "true".to_owned()));
        }
        if self.norms_after_rope {
            all.push(("norms_after_rope", "true".to_owned()));
        }
        all.push(("norm_eps", number(self.norm_eps)));
        all.push(("activation", text(&self.activation)));
        match self.computed {
            Positions::None if self.positions.is_some() => {}
            Positions::None => all.push(("positions", text("none"))),
            Positions::Sines(Sines::Interleaved) => all.push(("positions", text("sines"))),
            Positions::Sines(Sines::Halves) => all.push(("positions", text("sines_halves"))),
            Positions::Sines(Sines::HalvesToEnd) => {
                all.push(("positions", text("sines_halves_to_end")));
            }
            Positions::Sines(Sines::CosinesToEnd) => {
                all.push(("positions", text("cosines_to_end")));
            }
            Positions::Alibi => all.push(("positions", text("alibi"))),
            Positions::Rotary {
                theta,
                interleaved,
                d_rotary,
            } => {
                all.push(("positions", text("rotary")));
                all.push(("rope_theta", number(theta)));
                all.push(("rope_interleaved", interleaved.to_string()));
                if d_rotary != self.d_head {
                    all.push(("d_rotary", d_rotary.to_string()));
                }
                if self.rope_precision != RopePrecision::Float32 {
                    all.push(("rope_precision", text(self.rope_precision.name())));
                }
            }
        }
        let scale = match self.scale {
            Scale::InvSqrtD => text("inv_sqrt_d"),
            Scale::InvD => text("inv_d"),
            Scale::One => text("none"),
            other => number(f64::from(other.factor(self.d_head))),
        };
        all.push(("scale", scale));
        match self.embed_scale {
            EmbedScale::SqrtD => all.push(("embed_scale", text("sqrt_d"))),
            EmbedScale::Factor(factor) if factor != 1.0 => {
                all.push(("embed_scale", number(factor)))
            }
            EmbedScale::Factor(_) => {}
        }
        if let Some(window) = self.window {
            all.push(("window", window.to_string()));
            if let Some((step, first)) = self.window_layers {
                all.push(("window_layers", text(&format!("{step}*i+{first}"))));
            }
        }
        let caps = [
            ("softcap", self.softcap),
            ("logit_softcap", self.logit_softcap),
        ];
        for (key, cap) in caps {
            all.extend(cap.map(|cap| (key, number(f64::from(cap)))));
        }
        if self.logit_scale != 1.0 {
            all.push(("logit_scale", number(f64::from(self.logit_scale))));
        }
        all
    }
}

/// Formats a number as a person would write it.
fn number(number: f64) -> String {
    if number != 0.0 && (number.abs() < 1e-3 || number.abs() >= 1e7) {
        format!("{number:e}")
    } else if number.fract() == 0.0 {
        format!("{number:.1}")
    } else {
        number.to_string()
    }
}
