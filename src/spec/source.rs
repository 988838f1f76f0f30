//! Which tensors, or parts of them, hold an affine map or a table.

use std::ops::Range;

use super::factors::{FactorRule, FactorsHeld, OutputFactors};
use super::rounded::WeightFormat;

/// Which outputs of a stored, possibly fused, projection are used: in every group of `group` outputs, `len` from `offset`.
///
/// `[all q | all k | all v]` is one group; `[q k v]` repeated per head is one group per head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub group: usize,
    pub offset: usize,
    pub len: usize,
}

/// Which inputs of a stored matrix are used: those from the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputPart {
    pub first: usize,
    /// Number of inputs of the stored matrix.
    pub n_stored: usize,
}

/// Groups of the outputs of a map, as many of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapGroups {
    pub n: usize,
    /// Stored as the kernel of a convolution of width 1, and not as a matrix.
    pub is_kernel: bool,
}

/// The matrix of the last inputs of a map. // [n, n_out]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastInputs {
    pub tensor: String,
    pub n: usize,
}

/// One of several matrices in one tensor: along the first of three axes, or with the rows of one after those of another
/// (`is_joined`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slab {
    pub idx: usize,
    pub n: usize,
    pub is_joined: bool,
}

/// The last two axes of a stored map: heads, and the dimensions of each. The other axis comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadAxes {
    pub n_heads: usize,
    pub d_head: usize,
    /// Whether they are the inputs, as of an output map.
    pub are_inputs: bool,
}

/// An affine map and the tensors that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearSource {
    pub weight: String,
    pub bias: Option<String>,
    /// A stored vector of any shape that is added to the bias; where it is shorter than the outputs, each value counts for as many
    /// outputs in a row as there are for one.
    pub second_bias: Option<(String, Vec<usize>)>,
    pub n_in: usize,
    /// Number of outputs of the stored tensor, before `part` selects among them.
    pub n_stored_out: usize,
    /// Stored as [n_in, n_out] instead of [n_out, n_in].
    pub is_input_major: bool,
    pub part: Part,
    pub slab: Option<Slab>,
    /// The stored bias holds only the outputs selected by `part`.
    pub bias_is_of_part: bool,
    /// Applies the square matrix transposed. Set by what-ifs only.
    pub is_transposed: bool,
    pub scale: MapScale,
    /// Stored input axes (channels, frames if the model sees videos, rows, columns), if the input is a patch.
    pub patch: Option<Vec<usize>>,
    /// Stored axes of heads in place of one, if there are two.
    pub head_axes: Option<HeadAxes>,
    /// Set if each group of outputs reads its own inputs alone.
    pub groups: Option<MapGroups>,
    /// Set if these inputs are only some of the stored matrix's.
    pub inputs: Option<InputPart>,
    /// Set if the matrix of the last inputs is another tensor.
    pub last_inputs: Option<LastInputs>,
    /// Multiplies the outputs, bias included.
    pub factors: Option<OutputFactors>,
    /// The product of two stored matrices that is added to the weight.
    pub low_rank: Option<LowRank>,
    /// A map of the outputs that follows.
    pub then: Option<Box<Self>>,
    /// The stored matrix is applied to both halves of the input.
    pub applies_to_both_halves: bool,
    /// Rounds the weights after they were read. Set by what-ifs only.
    pub rounded: Option<WeightFormat>,
}

/// A low-rank addition to the weight of an affine map: up · down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowRank {
    /// [rank, n_in]
    pub down: String,
    /// [n_stored_out, rank]
    pub up: String,
    pub rank: usize,
}

impl LowRank {
    /// The stored matrices of the addition to a map, with their shapes.
    pub fn tensors(&self, of: &LinearSource) -> [(&String, Vec<usize>); 2] {
        [
            (&self.down, vec![self.rank, of.n_in]),
            (&self.up, vec![of.n_stored_out, self.rank]),
        ]
    }
}

/// Configured factors of an affine map: output · (W·(input · x) + b).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MapScale {
    pub input: f32,
    pub output: f32,
}

impl MapScale {
    /// No factors: the map as it is stored.
    pub const ONE: Self = Self {
        input: 1.0,
        output: 1.0,
    };

    /// Total factor of the weights.
    pub fn of_weight(self) -> f32 {
        self.input * self.output
    }
}

impl LinearSource {
    /// A whole tensor stored as [n_out, n_in].
    pub fn whole(weight: String, bias: Option<String>, n_in: usize, n_out: usize) -> Self {
        let part = Part {
            group: n_out,
            offset: 0,
            len: n_out,
        };
        Self {
            weight,
            bias,
            second_bias: None,
            n_in,
            n_stored_out: n_out,
            is_input_major: false,
            part,
            slab: None,
            bias_is_of_part: false,
            is_transposed: false,
            scale: MapScale::ONE,
            patch: None,
            head_axes: None,
            groups: None,
            inputs: None,
            last_inputs: None,
            factors: None,
            low_rank: None,
            then: None,
            applies_to_both_halves: false,
            rounded: None,
        }
    }

    /// The map, with its matrix stored as [n_in, n_out].
    pub fn input_major(self) -> Self {
        Self {
            is_input_major: true,
            ..self
        }
    }

    /// The map, restricted to some of its outputs.
    pub fn part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// The map with factors for its input and its output.
    pub fn scaled(self, input: f32, output: f32) -> Self {
        let scale = MapScale { input, output };
        Self { scale, ..self }
    }

    /// The map of an input twice as wide: the stored matrix is applied to both halves.
    pub fn for_both_halves(self) -> Self {
        Self {
            n_in: 2 * self.n_in,
            applies_to_both_halves: true,
            ..self
        }
    }

    /// The stored matrix as a map of one half; `None` unless it is applied to both halves of the input.
    pub fn half_map(&self) -> Option<Self> {
        self.applies_to_both_halves.then(|| Self {
            n_in: self.n_in / 2,
            applies_to_both_halves: false,
            ..self.clone()
        })
    }

    /// One matrix of a tensor that holds several.
    pub fn slab(self, idx: usize, n: usize) -> Self {
        let slab = Some(Slab {
            idx,
            n,
            is_joined: false,
        });
        Self { slab, ..self }
    }

    /// One of several matrices whose rows follow each other in one tensor.
    pub fn joined_slab(self, idx: usize, n: usize) -> Self {
        let slab = Some(Slab {
            idx,
            n,
            is_joined: true,
        });
        Self { slab, ..self }
    }

    /// The indices along a tensor's first axis that a slab covers, if that axis has `n_values`.
    pub fn slab_rows(&self, slab: Slab, n_values: usize) -> Range<usize> {
        let n = if slab.is_joined {
            n_values / slab.n.max(1)
        } else {
            1
        };
        slab.idx * n..(slab.idx + 1) * n
    }

    pub fn n_out(&self) -> usize {
        match &self.then {
            Some(then) => then.n_out(),
            None => self.n_stored_out / self.part.group.max(1) * self.part.len,
        }
    }

    /// The map of a patch's values, stored as the kernel of a convolution.
    pub fn of_patch(weight: String, bias: Option<String>, patch: Vec<usize>, n_out: usize) -> Self {
        let n_in = patch.iter().product();
        Self {
            patch: Some(patch),
            ..Self::whole(weight, bias, n_in, n_out)
        }
    }

    /// The map of the rows around each, stored as the kernel of a convolution over them: as many before a row as behind it, or one fewer.
    pub fn of_rows(
        weight: String,
        bias: Option<String>,
        [n_in, n_wide]: [usize; 2],
        n_out: usize,
    ) -> Self {
        Self::of_patch(weight, bias, vec![n_in, n_wide], n_out)
    }

    /// The values of a row, and the rows that are read for each, of a convolution over rows.
    pub fn over_rows(&self) -> Option<[usize; 2]> {
        match self.patch.as_deref() {
            Some([n_in, n_wide]) => Some([*n_in, *n_wide]),
            _ => None,
        }
    }

    /// The map, stored with two axes for heads in place of one.
    pub fn by_heads(self, axes: HeadAxes) -> Self {
        Self {
            head_axes: Some(axes),
            ..self
        }
    }

    /// The map, stored as the kernel of a convolution of width 1 in groups.
    pub fn in_groups(self, n: usize) -> Self {
        let groups = Some(MapGroups { n, is_kernel: true });
        Self { groups, ..self }
    }

    /// The map, each of whose groups of outputs is stored as rows of its own inputs.
    pub fn in_row_groups(self, n: usize) -> Self {
        let groups = Some(MapGroups {
            n,
            is_kernel: false,
        });
        Self { groups, ..self }
    }

    /// The map, and another one of its outputs behind it.
    pub fn followed_by(self, then: Self) -> Self {
        Self {
            then: Some(Box::new(then)),
            ..self
        }
    }

    /// The map, with another stored vector added to its bias.
    pub fn also_adding(self, tensor: String, shape: Vec<usize>) -> Self {
        Self {
            second_bias: Some((tensor, shape)),
            ..self
        }
    }

    /// The map of `n` of its inputs, from the first of them on.
    pub fn of_inputs(self, first: usize, n: usize) -> Self {
        let n_stored = self.n_in;
        Self {
            n_in: n,
            inputs: Some(InputPart { first, n_stored }),
            ..self
        }
    }

    /// The map, with its outputs multiplied by a stored vector.
    pub fn times(self, tensor: String) -> Self {
        Self {
            factors: Some(OutputFactors::stored(tensor)),
            ..self
        }
    }

    /// The map, with all outputs multiplied by one stored value.
    pub fn times_one_value(self, tensor: String) -> Self {
        Self {
            factors: Some(OutputFactors {
                held: FactorsHeld::One,
                ..OutputFactors::stored(tensor)
            }),
            ..self
        }
    }

    /// The map, with its outputs multiplied by 1 plus a stored vector.
    pub fn times_one_plus(self, tensor: String) -> Self {
        Self {
            factors: Some(OutputFactors {
                rule: FactorRule::OnePlus,
                ..OutputFactors::stored(tensor)
            }),
            ..self
        }
    }

    /// The stored matrix as a map of the inputs before the last ones, as it is stored; `None` if it is that of all.
    pub fn before_last(&self) -> Option<(Self, &LastInputs)> {
        let last = self.last_inputs.as_ref()?;
        let first = Self {
            n_in: self.n_in - last.n,
            last_inputs: None,
            scale: MapScale::ONE,
            rounded: None,
            ..self.clone()
        };
        Some((first, last))
    }

    /// The map before the one that follows, and that one; `None` unless one follows.
    pub fn before_then(&self) -> Option<(Self, &Self)> {
        let then = self.then.as_deref()?;
        let first = Self {
            then: None,
            ..self.clone()
        };
        Some((first, then))
    }

    /// Number of inputs of the stored matrix, or of a group of it.
    pub fn n_stored_in(&self) -> usize {
        match (self.inputs, self.groups) {
            (Some(inputs), _) => inputs.n_stored,
            (None, Some(groups)) => self.n_in / groups.n.max(1),
            (None, None) => self.n_in,
        }
    }

    /// The shape of the stored weight.
    pub fn stored_shape(&self) -> Vec<usize> {
        if let Some(patch) = &self.patch {
            return [&[self.n_stored_out], patch.as_slice()].concat();
        }
        if let Some(groups) = self.groups {
            let matrix = [self.n_stored_out, self.n_in / groups.n.max(1)];
            let width = groups.is_kernel.then_some(1);
            return matrix.into_iter().chain(width).collect();
        }
        let n_in = match self.inputs {
            Some(inputs) => inputs.n_stored,
            None if self.last_inputs.is_some() => {
                self.n_in - self.last_inputs.as_ref().map_or(0, |last| last.n)
            }
            None if self.applies_to_both_halves => self.n_in / 2,
            None => self.n_in,
        };
        if let Some(axes) = self.head_axes {
            let other = if axes.are_inputs {
                self.n_stored_out
            } else {
                n_in
            };
            return vec![other, axes.n_heads, axes.d_head];
        }
        let matrix = if self.is_input_major {
            [n_in, self.n_stored_out]
        } else {
            [self.n_stored_out, n_in]
        };
        match self.slab {
            Some(slab) if slab.is_joined => vec![slab.n * matrix[0], matrix[1]],
            slab => slab.iter().map(|slab| slab.n).chain(matrix).collect(),
        }
    }

    /// The shape of the stored bias.
    pub fn stored_bias_shape(&self) -> Vec<usize> {
        if let Some(axes) = self.head_axes.filter(|axes| !axes.are_inputs) {
            return vec![axes.n_heads, axes.d_head];
        }
        let slabs = self.slab.iter().map(|slab| slab.n);
        let n = if self.bias_is_of_part {
            self.n_out()
        } else {
            self.n_stored_out
        };
        slabs.chain([n]).collect()
    }
}

/// A table of rows to look up.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSource {
    pub tensor: String,
    pub n_rows: usize,
    pub width: usize,
}
