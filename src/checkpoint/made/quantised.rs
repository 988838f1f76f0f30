//! Matrices of a few bits per value: integers in groups that share a scale, as quantisation libraries pack them.
//!
//! Layouts as the libraries publish them: GPTQ (AutoGPTQ's `qlinear_torch`), AWQ (AutoAWQ's `WQLinear_GEMM`), bitsandbytes
//! (`QuantState`), compressed-tensors (`pack_quantized`), MLX (`mlx.core.dequantize`). Values are rounded as in each library's
//! own dequantisation.

use std::ops::Range;

use attnscope_compute::error::Result;
use half::{bf16, f16};
use rayon::prelude::*;

use super::reading::{all_of, rows_of};
use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::tensor_info::TensorInfo;
use crate::tensor_view::TensorView;

/// A matrix [output, input] of packed codes.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    pub layout: Layout,
    /// The packed codes.
    pub codes: TensorInfo,
    /// One scale for each group of values.
    pub scales: TensorInfo,
    /// Zero points, one for each group: the code of 0, or (MLX) the bias to add.
    pub zeros: Option<TensorInfo>,
    /// The group of each input, if groups are not consecutive.
    pub groups: Option<TensorInfo>,
    /// Number of inputs that share a scale.
    pub group: usize,
    pub bits: u32,
    /// Type to which the library rounds dequantised values.
    pub rounds_to: Dtype,
}

/// How codes are packed, and how to dequantise them.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// [input / n, output]; zero points [group, output / n] are stored minus `zeros_less`.
    Gptq { zeros_less: i32 },
    /// [input, output / n], interleaved in AWQ's order.
    Awq,
    /// [output, input / n], signed with an offset; scales [output, group].
    Compressed,
    /// [output, input] unpacked, signed; scales [output, group].
    Int8,
    /// As `Int8`, but the scales [output] are the largest magnitudes.
    VectorWise,
    /// [output, input / n]; scales and biases [output, group].
    Mlx,
    /// Indices into a table, two in a byte, in blocks of the flattened matrix; scales may be quantised themselves.
    Table {
        values: Box<TensorInfo>,
        nested: Option<Box<Nested>>,
    },
    /// Eight-bit floating point [output, input]; scales [output, 1] or one for all.
    Float,
}

/// Quantised scales, with scales of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    pub scales: TensorInfo,
    pub values: TensorInfo,
    pub block: usize,
    pub offset: f32,
}

/// Position in a word of each of AWQ's eight four-bit numbers.
const AWQ_ORDER: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
/// Factor by which bitsandbytes multiplies the largest magnitudes: 1 / 127, rounded as in its source.
const OF_127: f32 = 7.874_015_718_698_502e-3_f64 as f32;

impl Quantised {
    pub fn parts(&self) -> Vec<&TensorInfo> {
        let mut parts = vec![&self.codes, &self.scales];
        parts.extend(&self.zeros);
        parts.extend(&self.groups);
        if let Layout::Table { values, nested } = &self.layout {
            parts.push(values.as_ref());
            if let Some(nested) = nested.as_deref() {
                parts.extend([&nested.scales, &nested.values]);
            }
        }
        parts
    }

    /// Whether a row is contiguous, which it is not if the packed matrix is [input, output].
    pub fn is_row_wise(&self) -> bool {
        !matches!(self.layout, Layout::Gptq { .. } | Layout::Awq)
    }

    /// Dequantises some rows of the matrix.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn rows(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        shape: &[usize],
    ) -> Result<Vec<f32>> {
        let &[n_out, n_in] = shape else {
            return Ok(Vec::new());
        };
        match &self.layout {
            Layout::Gptq { zeros_less } => self.gptq(files, rows, [n_out, n_in], *zeros_less),
            Layout::Awq => self.awq(files, rows, [n_out, n_in]),
            Layout::Table { values, nested } => {
                self.table(files, rows, n_in, values, nested.as_deref())
            }
            Layout::VectorWise => self.vector_wise(files, rows, n_in),
            Layout::Float => self.float(files, rows, n_in),
            Layout::Compressed | Layout::Int8 | Layout::Mlx => self.row_major(files, rows, n_in),
        }
    }

    fn rounded(&self, value: f32) -> f32 {
        match self.rounds_to {
            Dtype::F16 => f16::from_f32(value).to_f32(),
            Dtype::Bf16 => bf16::from_f32(value).to_f32(),
            _ => value,
        }
    }

    fn groups_of_inputs(&self, files: &[DataFile], n_in: usize) -> Result<Vec<usize>> {
        match &self.groups {
            Some(info) => Ok(words(files, info, 0..n_in)?
                .iter()
                .map(|group| *group as usize)
                .collect()),
            None => Ok((0..n_in).map(|input| input / self.group).collect()),
        }
    }

    fn gptq(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        [n_out, n_in]: [usize; 2],
        zeros_less: i32,
    ) -> Result<Vec<f32>> {
        let codes = words(files, &self.codes, 0..self.codes.n_elements())?;
        let scales = all_of(files, &self.scales)?; // [group, output]
        let n_groups = scales.len() / n_out;
        let groups = self.groups_of_inputs(files, n_in)?;
        let per_zero_row = self
            .zeros
            .as_ref()
            .map_or(0, |zeros| zeros.n_elements() / n_groups.max(1));
        let zeros = match &self.zeros {
            Some(info) => words(files, info, 0..info.n_elements())?,
            None => Vec::new(),
        };
        let mut values = vec![0.0; rows.len() * n_in];
        values
            .par_chunks_mut(n_in)
            .zip(rows.into_par_iter())
            .for_each(|(row, output)| {
                for (input, value) in row.iter_mut().enumerate() {
                    let group = groups[input].min(n_groups.saturating_sub(1));
                    let code = bits_at(|word| codes[word * n_out + output], input, self.bits);
                    let zero = match per_zero_row {
                        0 => 1 << (self.bits - 1),
                        n => {
                            bits_at(|word| zeros[group * n + word], output, self.bits) + zeros_less
                        }
                    };
                    *value = self.rounded((code - zero) as f32 * scales[group * n_out + output]);
                }
            });
        Ok(values)
    }

    fn awq(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        [n_out, n_in]: [usize; 2],
    ) -> Result<Vec<f32>> {
        let codes = words(files, &self.codes, 0..self.codes.n_elements())?;
        let scales = all_of(files, &self.scales)?; // [group, output]
        let zeros = match &self.zeros {
            Some(info) => words(files, info, 0..info.n_elements())?,
            None => return Ok(Vec::new()),
        };
        let n_words = n_out / AWQ_ORDER.len();
        let nibble = |words: &[i32], row: usize, output: usize| {
            let word = words[row * n_words + output / AWQ_ORDER.len()] as u32;
            (word >> (4 * AWQ_ORDER[output % AWQ_ORDER.len()]) & 0xf) as i32
        };
        let mut values = vec![0.0; rows.len() * n_in];
        values
            .par_chunks_mut(n_in)
            .zip(rows.into_par_iter())
            .for_each(|(row, output)| {
                for (input, value) in row.iter_mut().enumerate() {
                    let group = input / self.group;
                    let number = nibble(&codes, input, output) - nibble(&zeros, group, output);
                    *value = self.rounded(number as f32 * scales[group * n_out + output]);
                }
            });
        Ok(values)
    }

    /// Dequantises rows of the layouts that are [output, input].
    fn row_major(&self, files: &[DataFile], rows: Range<usize>, n_in: usize) -> Result<Vec<f32>> {
        let per_row = |info: &TensorInfo| info.shape.iter().skip(1).product::<usize>();
        let n_codes = per_row(&self.codes);
        let codes = words(files, &self.codes, rows.start * n_codes..rows.end * n_codes)?;
        let of_rows = |info: &TensorInfo| -> Result<(usize, Vec<f32>)> {
            if info.shape.first().is_none_or(|n| *n == 1) && self.codes.shape[0] != 1 {
                return Ok((0, all_of(files, info)?));
            }
            Ok((per_row(info), rows_of(files, info, rows.clone())?))
        };
        let (n_scales, scales) = of_rows(&self.scales)?;
        let is_mlx = self.layout == Layout::Mlx;
        let added = match &self.zeros {
            Some(info) if is_mlx => Some(of_rows(info)?.1),
            _ => None,
        };
        // Integer zero points, one for each group, or packed along the outputs.
        let zeros = match &self.zeros {
            Some(info) if !is_mlx => Some(self.zeros_of(files, info, rows.clone(), n_scales)?),
            _ => None,
        };
        let groups = self.groups_of_inputs(files, n_in)?;
        let offset = match self.layout {
            Layout::Compressed => 1 << (self.bits - 1),
            _ => 0,
        };
        let mut values = vec![0.0; rows.len() * n_in];
        values
            .par_chunks_mut(n_in)
            .enumerate()
            .for_each(|(idx, row)| {
                let of_row = &codes[idx * n_codes..(idx + 1) * n_codes];
                for (input, value) in row.iter_mut().enumerate() {
                    let at = if n_scales == 0 {
                        0
                    } else {
                        idx * n_scales + groups[input].min(n_scales - 1)
                    };
                    let code = match self.layout {
                        Layout::Int8 => of_row[input],
                        _ => bits_at(|word| of_row[word], input, self.bits),
                    };
                    *value = match (&added, &zeros) {
                        (Some(added), _) => {
                            // MLX rounds the product before it adds, and the sum again.
                            self.rounded(self.rounded(code as f32 * scales[at]) + added[at])
                        }
                        (_, Some(zeros)) => {
                            self.rounded((code - offset - zeros[at]) as f32 * scales[at])
                        }
                        _ => self.rounded((code - offset) as f32 * scales[at]),
                    };
                }
            });
        Ok(values)
    }

    /// Reads the zero points of some rows, one for each group.
    fn zeros_of(
        &self,
        files: &[DataFile],
        info: &TensorInfo,
        rows: Range<usize>,
        n_scales: usize,
    ) -> Result<Vec<i32>> {
        let n_rows = self.codes.shape[0];
        let n_columns = n_scales.max(1);
        if info.dtype.size() == 4 && info.n_elements() != n_rows * n_columns {
            // [output / n, group]: each word packs a column of outputs.
            let packed = words(files, info, 0..info.n_elements())?;
            let of_row = |row: usize| {
                let packed = &packed;
                (0..n_columns).map(move |column| {
                    let code = bits_at(|word| packed[word * n_columns + column], row, self.bits);
                    code - (1 << (self.bits - 1))
                })
            };
            return Ok(rows.flat_map(of_row).collect());
        }
        if info.dtype.is_float() {
            // The values are whole numbers: this was checked when the file was opened.
            let all = all_of(files, info)?;
            let of_rows = all.get(rows.start * n_columns..rows.end * n_columns);
            return Ok(of_rows
                .unwrap_or_default()
                .iter()
                .map(|zero| *zero as i32)
                .collect());
        }
        words(files, info, rows.start * n_columns..rows.end * n_columns)
    }

    fn table(
        &self,
        files: &[DataFile],
        rows: Range<usize>,
        n_in: usize,
        values: &TensorInfo,
        nested: Option<&Nested>,
    ) -> Result<Vec<f32>> {
        let elements = rows.start * n_in..rows.end * n_in;
        let blocks = elements.start / self.group..elements.end.div_ceil(self.group);
        let scales: Vec<f32> = match nested {
            None => rows_of(files, &self.scales, blocks.clone())?,
            Some(nested) => {
                let codes = words(files, &self.scales, blocks.clone())?;
                let (table, scales) = (
                    all_of(files, &nested.values)?,
                    all_of(files, &nested.scales)?,
                );
                let scale = |(idx, code): (usize, &i32)| {
                    let block = (blocks.start + idx) / nested.block;
                    table[*code as usize & 0xff] * scales[block] + nested.offset
                };
                codes.iter().enumerate().map(scale).collect()
            }
        };
        let table = all_of(files, values)?;
        let first_byte = elements.start / 2;
        let bytes = words(files, &self.codes, first_byte..elements.end.div_ceil(2))?;
        let value = |element: usize| {
            let byte = bytes[element / 2 - first_byte] as usize;
            // The first of two codes is in the upper half.
            let code = if element.is_multiple_of(2) {
                byte >> 4
            } else {
                byte & 0xf
            };
            self.rounded(table[code & 0xf] * scales[element / self.group - blocks.start])
        };
        Ok(elements.into_par_iter().map(value).collect())
    }

    fn vector_wise(&self, files: &[DataFile], rows: Range<usize>, n_in: usize) -> Result<Vec<f32>> {
        let codes = words(files, &self.codes, rows.start * n_in..rows.end * n_in)?;
        let scales = rows_of(files, &self.scales, rows)?;
        let value =
            |(idx, code): (usize, &i32)| self.rounded(*code as f32 * scales[idx / n_in] * OF_127);
        Ok(codes.iter().enumerate().map(value).collect())
    }

    fn float(&self, files: &[DataFile], rows: Range<usize>, n_in: usize) -> Result<Vec<f32>> {
        let scales = all_of(files, &self.scales)?;
        let mut values = rows_of(files, &self.codes, rows.clone())?;
        for (row, values) in rows.zip(values.chunks_mut(n_in)) {
            let scale = scales
                .get(row)
                .or(scales.first())
                .copied()
                .unwrap_or(f32::NAN);
            values
                .iter_mut()
                .for_each(|v| *v = self.rounded(*v * scale));
        }
        Ok(values)
    }
}

/// Reads number `idx` from numbers of `bits` bits that are packed into 32-bit words, least significant first.
fn bits_at(word: impl Fn(usize) -> i32, idx: usize, bits: u32) -> i32 {
    let at = idx * bits as usize;
    let (first, shift) = (at / 32, (at % 32) as u32);
    let mask = (1u64 << bits) - 1;
    let mut pair = u64::from(word(first) as u32);
    if shift + bits > 32 {
        pair |= u64::from(word(first + 1) as u32) << 32;
    }
    (pair >> shift & mask) as i32
}

/// Reads elements of a flattened integer tensor; they are signed if its type is.
fn words(files: &[DataFile], info: &TensorInfo, elements: Range<usize>) -> Result<Vec<i32>> {
    let size = info.dtype.size().max(1);
    let view = TensorView::new(info, files);
    let bytes = view.stored_bytes(elements.start * size..elements.end * size)?;
    let is_signed = info.dtype == Dtype::Other("i8", 1);
    let number = |bytes: &[u8]| match *bytes {
        [byte] if is_signed => i32::from(byte as i8),
        [byte] => i32::from(byte),
        [a, b, c, d, ..] => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    Ok(bytes.chunks_exact(size).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_three_bits_cross_word_boundaries() {
        // 32 numbers of three bits in three words: number n is n modulo 8.
        let mut words = [0u32; 3];
        for idx in 0..32usize {
            for bit in 0..3 {
                let at = idx * 3 + bit;
                words[at / 32] |= ((idx >> bit & 1) as u32) << (at % 32);
            }
        }
        for idx in 0..32 {
            let found = bits_at(|word| words[word] as i32, idx, 3);
            assert_eq!(found, (idx % 8) as i32, "{idx}");
        }
    }
}
