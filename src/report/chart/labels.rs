//! Labels of marks above a plot, in as few rows as possible, so that none covers a curve or another label.

/// Position of a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Label {
    /// Left end.
    pub x: f64,
    /// Row, counted upwards from the plot.
    pub row: usize,
}

/// Places labels between the ends of a plot, in any unit: each mark's place and the width of its label, in any order. A label begins
/// at its mark where there is room, and ends at the right end of the plot otherwise. Labels on one row are `gap` apart.
pub fn placed(marks: &[(f64, f64)], (left, right): (f64, f64), gap: f64) -> Vec<Label> {
    let mut from_right: Vec<usize> = (0..marks.len()).collect();
    from_right.sort_by(|a, b| marks[*b].0.total_cmp(&marks[*a].0));
    let mut placed: Vec<Option<Label>> = vec![None; marks.len()];
    for idx in from_right {
        let (at, width) = marks[idx];
        let x = at.min(right - width).max(left);
        let others = placed.iter().zip(marks).filter_map(|(label, (_, width))| {
            let label = (*label)?;
            Some((label.x, label.x + width, label.row))
        });
        // Above every label it would touch, so that the mark's line reaches its label without crossing labels to the right.
        let touched = others.filter(|(start, end, _)| x < end + gap && *start < x + width + gap);
        let row = touched.map(|(.., row)| row + 1).max().unwrap_or(0);
        placed[idx] = Some(Label { x, row });
    }
    placed.into_iter().flatten().collect()
}

/// Returns the number of rows that the labels take.
pub fn n_rows(labels: &[Label]) -> usize {
    labels.iter().map(|label| label.row + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_share_a_row_until_they_would_touch() {
        let apart = placed(&[(0.0, 3.0), (5.0, 3.0)], (0.0, 10.0), 1.0);
        assert_eq!(n_rows(&apart), 1);
        let near = placed(&[(0.0, 3.0), (2.5, 3.0), (8.0, 4.0)], (0.0, 10.0), 1.0);
        let rows: Vec<usize> = near.iter().map(|label| label.row).collect();
        assert_eq!(rows, [2, 1, 0]);
        // The last one has no room to the right of its mark.
        assert_eq!(near[2].x, 6.0);
    }

    #[test]
    fn a_label_wider_than_the_plot_begins_at_the_left_end() {
        let placed = placed(&[(4.0, 20.0)], (1.0, 10.0), 1.0);
        assert_eq!(placed, [Label { x: 1.0, row: 0 }]);
        assert_eq!(n_rows(&[]), 0);
    }
}
