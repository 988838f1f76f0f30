//! The attention of a described model's layers: scale, mask, window, positions, and what is added to scores.

use attnscope_checkpoint::Tensors;
use attnscope_compute::attention::{
    Alibi, AttentionSpec, Bias, GridFrequencies, GridPlaces, GridTurn, KeyRank, Mask, RopeScaling,
    RopeSpec, TopKeys, Window,
};
use attnscope_spec::{LinearSource, PositionTable, StackSpec, TableSource};

use super::parts::{name_in_layer, name_of_all_heads};
use super::spec::Reads;
use super::tensors::angles_name;
use super::{Described, Positions};

impl Reads<'_> {
    pub(super) fn attention(&self, layer_idx: usize) -> Result<AttentionSpec, String> {
        let of = self.of;
        let is_windowed = of
            .window_layers
            .is_none_or(|(step, first)| step > 0 && layer_idx % step == first);
        let window = of
            .window
            .filter(|_| is_windowed)
            .map(|width| Window::of_width(width, of.causal));
        let stored = of.bias.as_ref();
        let stored = stored.map(|own| own.bias(of, self.tensors, layer_idx));
        let of_distances = self.relative(layer_idx)?.map(|(_, bias)| bias);
        let bias = match (stored.transpose()?.or(of_distances), of.computed) {
            (Some(_), Positions::Alibi) => {
                return Err(
                    "bias: positions = \"alibi\" adds to scores too; expected one of both"
                        .to_owned(),
                );
            }
            (Some(bias), _) => bias,
            (None, Positions::Alibi) => Bias::Alibi(Alibi {
                is_both_ways: !of.causal,
                ..Alibi::new(of.n_heads, 8.0)
            }),
            (None, _) => Bias::None,
        };
        let (grid, angles_before) = self.angles()?;
        Ok(AttentionSpec {
            d_value: of.d_value(),
            top_keys: of.top_keys.map(|n| TopKeys {
                n,
                by: KeyRank::Scores,
            }),
            scale: of.scale,
            mask: Mask {
                causal: of.causal,
                window,
                streaming: None,
                pools: None,
            },
            softcap: of.softcap,
            bias,
            rope: match of.computed {
                Positions::Rotary {
                    theta,
                    interleaved,
                    d_rotary,
                } => Some(RopeSpec {
                    interleaved,
                    scaling: if of.rope_divisors.is_empty() {
                        RopeScaling::None
                    } else {
                        RopeScaling::Long {
                            short: of.rope_divisors.clone(),
                            long: of.rope_divisors.clone(),
                            original_n_ctx: usize::MAX,
                        }
                    },
                    grid,
                    angles_before,
                    precision: of.rope_precision,
                    first: of.first_rotating(d_rotary),
                    ..RopeSpec::plain(theta, d_rotary)
                }),
                _ => None,
            },
            ..AttentionSpec::plain(of.n_heads, of.n_kv_heads, of.d_head, of.causal)
        })
    }

    /// Stored angles of rotary positions, as those of positions before a grid that no text reaches.
    fn angles(&self) -> Result<(Option<GridTurn>, Vec<f32>), String> {
        let (Some(name), Positions::Rotary { d_rotary, .. }) = (&self.of.angles, self.of.computed)
        else {
            return Ok((None, Vec::new()));
        };
        let arranged = angles_name(name);
        let stored = self.tensors.get(&arranged);
        let stored = stored.ok_or_else(|| format!("angles: no tensor is called {name}"))?;
        let n_pairs = d_rotary / 2;
        let shape = self.tensors.info(&arranged);
        let shape = shape.map(|info| info.shape.clone());
        let n_rows = match shape.as_deref() {
            Some([n_rows, width]) if *width == n_pairs && *n_rows > 0 => *n_rows,
            found => {
                return Err(format!(
                    "angles: {name}: expected [position, {n_pairs}], an angle for each pair that turns, found {:?}",
                    found.unwrap_or_default()
                ));
            }
        };
        let values = stored.widen().map_err(|error| error.to_string())?.to_vec();
        let turn = GridTurn {
            n_first: n_rows,
            grid: Some([1, 1]),
            places: GridPlaces::From(0),
            frequencies: GridFrequencies::Shared,
        };
        Ok((Some(turn), values))
    }

    /// The map whose sigmoid multiplies what the heads give.
    pub(super) fn out_gate(&self, layer_idx: usize) -> Result<Option<LinearSource>, String> {
        let (of, d_model) = (self.of, self.sizes.d_model);
        let Some(gate) = &of.out_gate else {
            return Ok(None);
        };
        let name = name_of_all_heads(&name_in_layer(&gate.weight, layer_idx));
        let info = |name: &str| self.tensors.info(name).map(|info| info.n_elements());
        let stored = info(&name).or_else(|| info(&gate.arranged_name(&name)));
        let n_out = stored.unwrap_or(0).checked_div(d_model).unwrap_or(0);
        if n_out != of.n_heads && n_out != of.n_heads * of.d_value() {
            return Err(format!(
                "out_gate: {name}: expected {} or {} outputs, one for each head or for each of their values, found {n_out}",
                of.n_heads,
                of.n_heads * of.d_value()
            ));
        }
        Ok(Some(self.map(gate, layer_idx, (d_model, n_out), false)))
    }

    /// The table of what is added to the scores of one layer alone.
    pub(super) fn bias_of_layer(&self, layer_idx: usize) -> Result<Option<TableSource>, String> {
        let own = self.bias_table(layer_idx)?;
        Ok(own.and_then(|(table, is_shared)| (!is_shared).then_some(table)))
    }

    /// The table of what is added to the scores of every layer.
    pub(super) fn bias_of_all_layers(&self) -> Result<Option<TableSource>, String> {
        let first = self.bias_table(self.of.first_attending())?;
        Ok(first.and_then(|(table, is_shared)| is_shared.then_some(table)))
    }

    fn bias_table(&self, layer_idx: usize) -> Result<Option<(TableSource, bool)>, String> {
        let bias = self.of.bias.as_ref();
        let found = bias.map(|bias| bias.source(self.of, self.tensors, layer_idx));
        found.transpose()
    }
}

impl Described {
    /// The number of positions that the tables of a stack were made for; `None` without such tables.
    pub(super) fn n_ctx(&self, stack: &StackSpec, tensors: &Tensors) -> Option<usize> {
        let stored = stack.embed.positions.as_ref();
        let stored = stored.and_then(PositionTable::n_rows);
        let bias = self.bias.as_ref();
        let added = bias.and_then(|bias| bias.n_positions(self, tensors));
        let turned = stack.first_attention().and_then(|own| own.rope.as_ref());
        let turned = turned.and_then(|rope| rope.grid).map(|turn| turn.n_first);
        let distances = self.n_of_distances(tensors);
        let made = added.into_iter().chain(turned).chain(distances);
        stored.into_iter().chain(made).min()
    }
}
