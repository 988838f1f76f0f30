//! One cell of the selected head's map: its value, and its description under the pointer.

use crate::figure::figure;
use crate::state::scene::Scene;
use crate::state::views::Axis;

/// Value of a cell of the selected head's map, pooled if the map is; `None` if it is masked.
pub fn cell(app: Scene<'_>, query_idx: usize, key_idx: usize) -> Option<f32> {
    let detail = app.shown_detail()?;
    let map = match app.shown_difference() {
        Some(difference) => difference,
        None => detail.map(app.head_map()).unwrap_or(&detail.pattern),
    };
    let (map, pooling) = (map.finest(), detail.pooling());
    let (row, col) = (query_idx / pooling, key_idx / pooling);
    let is_inside = row < map.n_rows && col < map.n_cols;
    let value = is_inside.then(|| map.at(row, col))?;
    (value != f32::NEG_INFINITY).then_some(value)
}

/// Describes the cell of the map under the pointer.
pub fn told_of_cell(app: Scene<'_>, query_idx: usize, key_idx: usize) -> String {
    let [query, key] = [(Axis::Query, query_idx), (Axis::Key, key_idx)]
        .map(|(axis, idx)| format!("{idx} “{}”", app.token(axis, idx)));
    let value = cell(app, query_idx, key_idx);
    let value = value.map_or("masked".to_owned(), |value| figure(f64::from(value), 0));
    let pooling = app.shown_detail().map_or(1, |detail| detail.pooling());
    let pooled = if pooling > 1 {
        format!(", the largest of {pooling} × {pooling}")
    } else {
        String::new()
    };
    format!("query {query} → key {key}: {value}{pooled}")
}
