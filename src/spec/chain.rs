//! Chains of convolutions before, between and behind the layers of a stack, as data. The positions of a sequence are a plane of one column.

use attnscope_compute::ops::Activation;

use super::norm_source::NormSource;
use super::planes::PlaneConvolution;
use super::source::LinearSource;

/// Steps over the places of a picture, one after another. What a chain keeps for a later one stands beside the residual until then.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Width of what it reads.
    pub n_in: usize,
    /// Widths of what chains before it kept, the oldest first.
    pub kept: Vec<usize>,
    pub steps: Vec<ChainStep>,
}

/// One step of a chain.
#[derive(Debug, Clone, PartialEq)]
pub enum ChainStep {
    Convolution(PlaneConvolution),
    /// A map of each place.
    Map(Box<LinearSource>),
    /// A norm of each place, or of groups of channels over all places.
    Norm(Box<NormSource>),
    Activation(Activation),
    /// Multiplies values below 0.
    Leaky(f32),
    /// The sum of what two chains make of the same places; one without steps gives them as they are.
    Sum(Box<[Chain; 2]>),
    /// Keeps what stands here.
    Keep,
    /// Adds what was kept last, which is forgotten.
    AddKept,
    /// Puts what was kept last before the values of each place, and forgets it.
    BesideKept,
    /// Expects whole squares of so many rows and columns of places, and changes nothing.
    Squares(usize),
    /// So many equal moments: a model of videos sees a picture that stands still.
    Repeat(usize),
    /// A convolution over moments too.
    Moments(MomentConvolution),
}

/// A convolution over moments, rows and columns. As many moments of zeros stand before the first as its kernel reads before the last.
#[derive(Debug, Clone, PartialEq)]
pub struct MomentConvolution {
    /// Over rows and columns of one moment; its kernel has an axis of moments behind that of inputs.
    pub plane: PlaneConvolution,
    /// Moments that the kernel reads.
    pub n_wide: usize,
    /// Moments from one output to the next.
    pub stride: usize,
    /// Moments of zeros before the first.
    pub padding: usize,
}

impl MomentConvolution {
    /// Number of moments after, given that before.
    pub fn n_to(&self, n: usize) -> usize {
        let left = (n + self.padding).checked_sub(self.n_wide);
        left.map_or(0, |left| left / self.stride.max(1) + 1)
    }

    /// The required shape of the kernel. // [n_out, n_in, moment, row, column]
    pub fn shape(&self) -> Vec<usize> {
        let PlaneConvolution {
            n_in,
            n_out,
            n_wide,
            ..
        } = self.plane;
        vec![n_out, n_in, self.n_wide, n_wide, n_wide]
    }

    /// The tensors it reads, with their required shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        let n_out = self.plane.n_out;
        let bias = self.plane.bias.iter().map(move |bias| (bias, vec![n_out]));
        [(&self.plane.weight, self.shape())].into_iter().chain(bias)
    }
}

impl ChainStep {
    /// x plus what steps make of it.
    pub fn residual(n_in: usize, steps: Vec<Self>) -> Self {
        let [branch, itself] = [steps, Vec::new()].map(|steps| Chain::plain(n_in, steps));
        Self::Sum(Box::new([branch, itself]))
    }

    /// Rows and columns after, given those before.
    fn to(&self, from: [usize; 2]) -> [usize; 2] {
        match self {
            Self::Convolution(convolution) => convolution.to(from),
            Self::Moments(moments) => moments.plane.to(from),
            Self::Sum(chains) => chains[0].to(from),
            _ => from,
        }
    }

    /// Width after, given that before and those of what is kept, which may change.
    fn width(&self, width: usize, kept: &mut Vec<usize>) -> usize {
        match self {
            Self::Convolution(convolution) => convolution.n_out,
            Self::Moments(moments) => moments.plane.n_out,
            Self::Map(map) => map.n_out(),
            Self::Sum(chains) => chains[0].n_out(),
            Self::Keep => {
                kept.push(width);
                width
            }
            Self::AddKept => {
                kept.pop();
                width
            }
            Self::BesideKept => width + kept.pop().unwrap_or_default(),
            Self::Norm(_)
            | Self::Activation(_)
            | Self::Leaky(_)
            | Self::Squares(_)
            | Self::Repeat(_) => width,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Convolution(convolution) => convolution.words(),
            Self::Map(map) => format!("{}→{}", map.n_in, map.n_out()),
            Self::Norm(norm) => match norm.groups {
                Some(groups) => format!("normed in {groups} groups"),
                None => "normed".to_owned(),
            },
            Self::Activation(activation) => activation.to_string(),
            Self::Sum(chains) => {
                let [branch, beside] = chains.each_ref().map(Chain::words);
                match beside.as_str() {
                    "" => format!("+ ({branch})"),
                    beside => format!("({beside}) + ({branch})"),
                }
            }
            Self::Leaky(by) => format!("below 0 times {by}"),
            Self::Keep => "kept".to_owned(),
            Self::AddKept => "+ kept".to_owned(),
            Self::BesideKept => "beside kept".to_owned(),
            Self::Squares(side) => format!("squares of {side} × {side}"),
            Self::Repeat(n) => format!("{n} equal moments"),
            Self::Moments(moments) => {
                let (wide, stride) = (moments.n_wide, moments.stride);
                format!("{} of {wide} moments every {stride}", moments.plane.words())
            }
        }
    }
}

impl Chain {
    /// A chain before which nothing was kept.
    pub fn plain(n_in: usize, steps: Vec<ChainStep>) -> Self {
        Self {
            n_in,
            kept: Vec::new(),
            steps,
        }
    }

    /// Rows and columns of places after, given those before.
    pub fn to(&self, from: [usize; 2]) -> [usize; 2] {
        self.steps.iter().fold(from, |grid, step| step.to(grid))
    }

    /// Width of what it gives.
    pub fn n_out(&self) -> usize {
        self.ends().0
    }

    /// Width of what it keeps for later ones, all together.
    pub fn n_beside(&self) -> usize {
        self.left().iter().sum()
    }

    /// Widths of what it keeps for later ones, the oldest first.
    pub fn left(&self) -> Vec<usize> {
        self.ends().1
    }

    fn ends(&self) -> (usize, Vec<usize>) {
        let mut kept = self.kept.clone();
        let steps = self.steps.iter();
        let width = steps.fold(self.n_in, |width, step| step.width(width, &mut kept));
        (width, kept)
    }

    /// The most values that stand between two steps, for this many rows and columns of places, and what is kept beside them.
    pub fn n_values(&self, from: [usize; 2]) -> usize {
        let (mut grid, mut width, mut kept) = (from, self.n_in, self.kept.clone());
        let mut most = 0;
        for step in &self.steps {
            let inside = match step {
                ChainStep::Sum(chains) => chains.iter().map(|chain| chain.n_values(grid)).sum(),
                _ => 0,
            };
            let moments = match step {
                ChainStep::Repeat(n) => *n,
                _ => 1,
            };
            (grid, width) = (step.to(grid), step.width(width, &mut kept));
            let n_places = grid[0].saturating_mul(grid[1]);
            let beside = kept.iter().sum::<usize>();
            let own = n_places.saturating_mul(moments * width + beside);
            most = most.max(own).max(inside);
        }
        most
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(ChainStep::words).collect();
        steps.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_gives_the_places_and_the_width_of_its_last_convolution() {
        let convolution = |[n_in, n_out]: [usize; 2], stride: usize| PlaneConvolution {
            weight: String::new(),
            bias: None,
            n_in,
            n_out,
            is_by_channel: false,
            is_line: false,
            apart: 1,
            n_wide: 3,
            strides: [stride; 2],
            padding: [1; 2],
            is_activated: false,
        };
        let [branch, beside] = [2, 2].map(|stride| {
            Chain::plain(4, vec![ChainStep::Convolution(convolution([4, 8], stride))])
        });
        let steps = vec![
            ChainStep::Convolution(convolution([3, 4], 1)),
            ChainStep::Activation(Activation::Silu),
            ChainStep::Sum(Box::new([branch, beside])),
            ChainStep::residual(8, vec![ChainStep::Activation(Activation::Silu)]),
        ];
        let chain = Chain::plain(3, steps);
        assert_eq!((chain.to([8, 5]), chain.n_out()), ([4, 3], 8));
        assert!(chain.words().ends_with("+ (silu)"), "{}", chain.words());
        let chain = Chain {
            kept: vec![5, 6],
            ..Chain::plain(3, vec![ChainStep::BesideKept, ChainStep::Keep])
        };
        assert_eq!((chain.n_out(), chain.left()), (9, vec![5, 9]));
        assert_eq!(chain.n_values([2, 2]), 4 * (9 + 5 + 9));
        let moments = MomentConvolution {
            plane: convolution([4, 4], 1),
            n_wide: 4,
            stride: 2,
            padding: 2,
        };
        assert_eq!([4, 2, 1].map(|n| moments.n_to(n)), [2, 1, 0]);
        assert_eq!(moments.shape(), [4, 4, 4, 3, 3]);
    }
}
