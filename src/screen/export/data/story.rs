//! The data of the Story panel: the contents of the open page, whatever kind of picture it shows.

use attnscope_report::chart::Chart;
use attnscope_report::{Map, Passage, Picture, Table as TextTable};

use attnscope_report::table::{Table, TableRow};
use attnscope_report::table_row;

use super::{Figure, PanelData};
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Story,
    parts: &[
        ("point", "a point of a chart"),
        ("cell", "a cell of a table"),
        ("value", "a cell of a map of the selected head"),
        ("row", "a row of such a map"),
        ("column", "a column of such a map"),
        ("text", "a text"),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

table_row! {
    struct Row {
        part: &'static str, "", "kind of row";
        page: &'static str, "", "title of the page";
        of: String, "", "which chart, map or text of the page";
        series: String, "", "the line of a chart; the column of a table";
        row: Option<usize>, "position", "row of a table or a map";
        column: Option<usize>, "position", "column of a map";
        x: Option<Figure>, "", "where a point lies; the unit is in the chart";
        value: Option<Figure>, "", "its height; a cell of a map; what a row or column sums to";
        text: String, "", "a cell of a table; a label of a map; a text";
    }
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(page) = app.story.as_ref().and_then(|story| story.page()) else {
        return Vec::new();
    };
    let rows: Vec<Row> = match &page.picture {
        Picture::Charts(charts) => charts.iter().flat_map(points).collect(),
        Picture::Table(table) => cells(table).collect(),
        Picture::Maps(maps) => maps.iter().flat_map(|map| values(app, map)).collect(),
        Picture::Passages(passages) => passages.iter().map(text).collect(),
    };
    let page = page.title;
    rows.into_iter().map(|row| Row { page, ..row }).collect()
}

fn points(chart: &Chart) -> impl Iterator<Item = Row> + '_ {
    chart.series.iter().flat_map(move |series| {
        series.points.iter().map(move |(x, y)| Row {
            part: "point",
            of: chart.title.clone(),
            series: series.name.clone(),
            x: Some((*x).into()),
            value: Some((*y).into()),
            ..Row::default()
        })
    })
}

fn cells(table: &TextTable) -> impl Iterator<Item = Row> + '_ {
    table
        .rows
        .iter()
        .enumerate()
        .flat_map(move |(row_idx, row)| {
            table.titles.iter().zip(row).map(move |(title, cell)| Row {
                part: "cell",
                series: (*title).to_owned(),
                row: Some(row_idx),
                text: cell.clone(),
                ..Row::default()
            })
        })
}

fn text(passage: &Passage) -> Row {
    Row {
        part: "text",
        of: passage.title.clone(),
        text: passage.text.clone(),
        ..Row::default()
    }
}

/// The cells of the map on screen, then its margins.
fn values(app: Scene<'_>, map: &Map) -> Vec<Row> {
    let at = app.selection;
    let Some(sheet) = map.sheet(at.layer_idx, at.head_idx) else {
        return Vec::new();
    };
    let of = || Row {
        of: map.title.clone(),
        ..Row::default()
    };
    let finest = sheet.values.finest();
    let n_columns = finest.n_cols.max(1);
    let cells = finest.cells.iter().enumerate().map(|(nth, value)| Row {
        part: "value",
        row: Some(nth / n_columns * finest.queries_per_cell),
        column: Some(nth % n_columns * finest.keys_per_cell),
        value: Some((*value).into()),
        ..of()
    });
    let rows = map.row_labels.iter().enumerate().map(|(idx, label)| Row {
        part: "row",
        row: Some(idx),
        value: sheet.row_sums.get(idx).map(|sum| (*sum).into()),
        text: label.clone(),
        ..of()
    });
    let columns = map
        .column_labels
        .iter()
        .enumerate()
        .map(|(idx, label)| Row {
            part: "column",
            column: Some(idx),
            value: sheet.column_sums.get(idx).map(|sum| (*sum).into()),
            text: label.clone(),
            ..of()
        });
    cells.chain(rows).chain(columns).collect()
}
