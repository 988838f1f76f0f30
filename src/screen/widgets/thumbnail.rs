//! A head's pooled map in a few pixels, so that its texture can be told from those of other heads.

use attnscope_compute::attention::Pooled;

use super::hidden::Unseen;
pub use crate::state::thumbnail::Thumbnail;

/// Number of pixels along one side: whole pixels per cell, or parts of the cells per pixel.
fn side(n_cells: usize, most: usize, zoom: usize) -> usize {
    if zoom > 0 {
        n_cells * zoom
    } else {
        n_cells.min(most)
    }
}

impl Thumbnail {
    /// Size in pixels of a map of so many cells, at most as large as given: width, then height.
    pub fn size((n_rows, n_cols): (usize, usize), most: (usize, usize)) -> (usize, usize) {
        if n_rows == 0 || n_cols == 0 {
            return (0, 0);
        }
        let zoom = (most.0 / n_cols).min(most.1 / n_rows);
        (side(n_cols, most.0, zoom), side(n_rows, most.1, zoom))
    }

    /// The picture of a map in at most so many pixels. `before` is subtracted from it if both have one size.
    pub fn of(
        map: &Pooled,
        before: Option<&Pooled>,
        unseen: &Unseen,
        most: (usize, usize),
    ) -> Self {
        let (width, height) = Self::size((map.n_rows, map.n_cols), most);
        let before = before.filter(|before| before.cells.len() == map.cells.len());
        let mut values = Vec::with_capacity(width * height);
        // One value for each column of cells, over the rows under a row of pixels.
        let mut columns = vec![0.0f32; map.n_cols];
        for y in 0..height {
            let (top, bottom) = covered(map.n_rows, height, y);
            let rows = top * map.n_cols..bottom * map.n_cols;
            match before {
                None => largest_of(&mut columns, &map.cells[rows]),
                Some(before) => {
                    farthest_of(&mut columns, &map.cells[rows.clone()], &before.cells[rows])
                }
            }
            for x in 0..width {
                let (left, right) = covered(map.n_cols, width, x);
                let most = columns[left..right].iter().copied().fold(0.0, farther);
                // A weight on a hidden key is a fault, so only zeros are left out.
                let is_hidden = most == 0.0
                    && (top..bottom).all(|row| (left..right).all(|col| unseen.hides(row, col)));
                values.push((!is_hidden).then_some(most));
            }
        }
        Self {
            width,
            height,
            values,
        }
    }

    /// The picture of the last rows of a map that grows, a pixel each: rows see the keys that they have a weight for. It is as wide
    /// as a map of `n_keys` will be.
    pub fn of_rows(rows: &[&[f32]], n_keys: usize, most: (usize, usize)) -> Self {
        let rows = &rows[rows.len().saturating_sub(most.1)..];
        let (width, _) = Self::size((1, n_keys.max(1)), (most.0, 1));
        let mut values = Vec::with_capacity(width * rows.len());
        for row in rows {
            for x in 0..width {
                let (left, right) = covered(n_keys.max(1), width, x);
                let seen = row.get(left..right.min(row.len()));
                let seen = seen.filter(|keys| !keys.is_empty());
                values.push(seen.map(|keys| keys.iter().copied().fold(0.0, farther)));
            }
        }
        Self {
            width,
            height: rows.len(),
            values,
        }
    }
}

/// The first cell under a pixel, and the one after the last.
pub fn covered(n_cells: usize, n_pixels: usize, pixel: usize) -> (usize, usize) {
    let first = pixel * n_cells / n_pixels;
    (first, ((pixel + 1) * n_cells / n_pixels).max(first + 1))
}

/// The largest weight of each column of some rows; NaN wins. Weights are not negative, so their bits compare as they do, which is
/// several times as fast: a frame may read millions of cells.
fn largest_of(columns: &mut [f32], rows: &[f32]) {
    let mut largest = vec![0i32; columns.len()];
    for row in rows.chunks_exact(columns.len().max(1)) {
        for (most, value) in largest.iter_mut().zip(row) {
            let bits = value.to_bits() as i32;
            *most = (*most).max(if value.is_nan() { i32::MAX } else { bits });
        }
    }
    for (column, most) in columns.iter_mut().zip(largest) {
        // These bits are a NaN.
        *column = f32::from_bits(most as u32);
    }
}

/// The change farthest from 0 of each column of some rows.
fn farthest_of(columns: &mut [f32], rows: &[f32], before: &[f32]) {
    columns.fill(0.0);
    let n = columns.len().max(1);
    for (row, before) in rows.chunks_exact(n).zip(before.chunks_exact(n)) {
        for ((most, after), before) in columns.iter_mut().zip(row).zip(before) {
            *most = farther(*most, after - before);
        }
    }
}

/// The value farther from 0; NaN wins, and a cell that is marked as masked never does.
fn farther(most: f32, value: f32) -> f32 {
    let is_farther = value.abs() > most.abs() && value != f32::NEG_INFINITY;
    if is_farther || value.is_nan() {
        value
    } else {
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_compute::attention::{HeadSummary, Mask, RowSummary};

    /// A causal head whose queries give their keys these weights, divided by their sum.
    fn head(n: usize, weight: impl Fn(usize, usize) -> f32) -> HeadSummary {
        let mut pooled = Pooled::new(n, n);
        for query_idx in 0..n {
            let mut row: Vec<f32> = (0..n).map(|key_idx| weight(query_idx, key_idx)).collect();
            row[query_idx + 1..].fill(0.0);
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|weight| *weight /= sum);
            pooled.add_row(query_idx, &row);
        }
        HeadSummary {
            rows: vec![RowSummary::empty(true); n],
            column_sums: vec![0.0; n],
            k_norms: Vec::new(),
            value_norms: Vec::new(),
            real_keys: None,
            global_tokens: Vec::new(),
            pooled,
            samples: Vec::new(),
        }
    }

    const CAUSAL: Mask = Mask {
        causal: true,
        window: None,
        streaming: None,
        pools: None,
    };

    /// The picture in glyphs: blank where masked, then dark, middle and bright.
    fn glyphs(head: &HeadSummary, most: (usize, usize)) -> Vec<String> {
        let unseen = Unseen::of(head, CAUSAL);
        let picture = Thumbnail::of(&head.pooled, None, &unseen, most);
        let share = picture.by_row();
        let glyph = |share: Option<f32>| match share {
            None => ' ',
            Some(share) if share.is_nan() => '×',
            Some(share) if share < 0.34 => '.',
            Some(share) if share < 0.67 => 'o',
            Some(_) => '#',
        };
        let line = |y| (0..picture.width).map(|x| glyph(share(x, y))).collect();
        (0..picture.height).map(line).collect()
    }

    #[test]
    fn six_by_six_pixels_tell_the_textures_of_heads_of_512_tokens_apart() {
        let faint = 1e-4;
        let near = |a: usize, b: usize| if a == b { 1.0 } else { faint };
        let previous = head(512, |query, key| near(key + 1, query));
        let first = head(512, |_, key| near(key, 0));
        let even = head(512, |_, _| 1.0);
        let induction = head(512, |query, key| near(key + 255, query.max(255)));
        let drawn = [&previous, &first, &even, &induction].map(|head| glyphs(head, (6, 6)));
        assert_eq!(
            drawn[0],
            ["#     ", "##    ", ".##   ", "..##  ", "...## ", "....##"]
        );
        assert_eq!(
            drawn[1],
            ["#     ", "#.    ", "#..   ", "#...  ", "#.... ", "#....."]
        );
        assert_eq!(
            drawn[2],
            ["#     ", "##    ", "###   ", "####  ", "##### ", "######"]
        );
        assert_eq!(drawn[3][5], "..##..", "a stripe below the diagonal");
    }

    #[test]
    fn few_tokens_have_whole_pixels() {
        let head = head(3, |_, _| 1.0);
        assert_eq!(
            glyphs(&head, (7, 8)),
            ["##    ", "##    ", "####  ", "####  ", "######", "######"]
        );
    }

    #[test]
    fn a_map_that_grows_keeps_its_columns_and_its_last_rows() {
        let rows: [&[f32]; 3] = [&[1.0], &[0.0, 0.5, 0.5], &[0.1, 0.2, 0.3, 0.4]];
        let grown = Thumbnail::of_rows(&rows, 8, (4, 2));
        assert_eq!((grown.width, grown.height), (4, 2));
        assert_eq!(
            [0, 1, 2].map(|x| grown.at(x, 0)),
            [Some(0.5), Some(0.5), None]
        );
        assert_eq!(
            [0, 1, 2].map(|x| grown.at(x, 1)),
            [Some(0.2), Some(0.4), None]
        );
        // A row that is not there is blank.
        let gone = Thumbnail::of_rows(&[&[]], 8, (4, 2));
        assert_eq!(gone.at(0, 0), None);
    }

    #[test]
    fn a_weight_on_a_hidden_key_and_a_nan_are_shown() {
        let mut head = head(4, |_, _| 1.0);
        head.pooled.cells[2] = 0.5;
        head.pooled.cells[8] = f32::NAN;
        let lines = glyphs(&head, (4, 4));
        assert_eq!(lines[0], "# # ", "the third key is after the first query");
        assert_eq!(&lines[2][.."×".len()], "×");
    }

    #[test]
    fn padding_is_blank() {
        let mut head = head(4, |_, _| 1.0);
        head.pooled.cells[12..].fill(0.0);
        head.rows[3] = RowSummary::empty(false);
        head.real_keys = Some(vec![true, true, true, false]);
        assert_eq!(glyphs(&head, (4, 4))[3], "    ");
    }

    #[test]
    fn changes_lie_around_a_half_and_the_largest_is_at_the_end() {
        let [before, after] = [head(4, |_, key| 1.0 + key as f32), head(4, |_, _| 1.0)];
        let unseen = Unseen::of(&after, CAUSAL);
        let picture = Thumbnail::of(&after.pooled, Some(&before.pooled), &unseen, (4, 4));
        let share = picture.by_change(picture.largest());
        assert_eq!(share(0, 0), Some(0.5), "nothing moved");
        assert_eq!(share(1, 0), None, "masked");
        let row = [0, 1, 2, 3].map(|x| share(x, 3).expect("a value"));
        assert!(row[0] > 0.5 && row[3] < 0.5, "{row:?}");
        let all = (0..4).flat_map(|y| (0..4).map(move |x| (x, y)));
        let farthest = all
            .filter_map(|(x, y)| share(x, y))
            .map(|v| (v - 0.5).abs());
        assert_eq!(farthest.fold(0.0, f32::max), 0.5);
    }
}
