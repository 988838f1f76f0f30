//! Convolutions over a plane, as data: the frames and bands of a spectrogram, or the patches of a picture.

/// A convolution over a plane of rows and columns: frames and bands, or patches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneConvolution {
    /// [n_out, n_in, n_wide, n_wide], or [n_out, 1, n_wide, n_wide] if each channel is by itself: rows, then columns
    pub weight: String,
    pub bias: Option<String>,
    pub n_in: usize,
    pub n_out: usize,
    /// Set if the kernel reads rows of one column, and is stored without an axis of columns.
    pub is_line: bool,
    /// Each channel is by itself, with a kernel of its own.
    pub is_by_channel: bool,
    /// Width of the kernel in rows and in columns.
    pub n_wide: usize,
    /// Rows, and columns, from one value that the kernel reads to the next.
    pub apart: usize,
    /// Rows, and columns, from one output to the next.
    pub strides: [usize; 2],
    /// Zeros before the first and behind the last row, and column.
    pub padding: [usize; 2],
    /// Whether an activation follows, which stands beside the convolution.
    pub is_activated: bool,
}

impl PlaneConvolution {
    /// Number of outputs along a side of `n` values: rows for axis 0, columns for axis 1.
    pub fn n_along(&self, n: usize, axis: usize) -> usize {
        if self.is_line && axis == 1 {
            return n;
        }
        let padded = n + self.padding[0] + self.padding[1];
        let reach = self.n_wide.saturating_sub(1) * self.apart + 1;
        let left = padded.checked_sub(reach);
        left.map_or(0, |left| left / self.strides[axis].max(1) + 1)
    }

    /// Rows and columns of its outputs.
    pub fn to(&self, [n_rows, n_columns]: [usize; 2]) -> [usize; 2] {
        [self.n_along(n_rows, 0), self.n_along(n_columns, 1)]
    }

    /// The tensors it reads, with their required shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        let bias = self.bias.iter().map(|bias| (bias, vec![self.n_out]));
        [(&self.weight, self.shape())].into_iter().chain(bias)
    }

    /// The required shape of the kernel.
    pub fn shape(&self) -> Vec<usize> {
        let n_in = if self.is_by_channel { 1 } else { self.n_in };
        let mut shape = vec![self.n_out, n_in, self.n_wide];
        shape.extend((!self.is_line).then_some(self.n_wide));
        shape
    }

    /// Columns that the kernel reads.
    pub fn n_across(&self) -> usize {
        if self.is_line { 1 } else { self.n_wide }
    }

    /// Values that the kernel reads of a channel.
    pub fn n_read(&self) -> usize {
        self.n_wide * self.n_across()
    }

    /// Describes the computation, for comparisons.
    pub fn words(&self) -> String {
        let Self {
            n_in,
            n_out,
            n_wide,
            strides: [stride, of_columns],
            padding: [before, behind],
            apart,
            ..
        } = self;
        let by_channel = if self.is_by_channel {
            ", by channel"
        } else {
            ""
        };
        let spread = match apart {
            1 => String::new(),
            apart => format!(", {apart} apart"),
        };
        let stride = if stride == of_columns {
            stride.to_string()
        } else {
            format!("{stride}×{of_columns}")
        };
        let across = self.n_across();
        format!(
            "{n_in}→{n_out} over {n_wide}×{across} every {stride}, padded by {before} and {behind}{by_channel}{spread}"
        )
    }
}
