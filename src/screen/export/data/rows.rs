//! The data of the Rows panel: the figures of every query of the selected head, and the answers about it.

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData, selected_head};
use crate::panels::rows::{asked, figures, head, known_columns, mean_key_norm};
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::state::views::Axis;

pub static DATA: PanelData = PanelData {
    panel: Panel::Rows,
    parts: &[
        ("row", "a query of the selected head"),
        (
            "question",
            "a question on the way to the cause of a collapse, and its answer",
        ),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    query: Option<usize>, "position", "the query";
    token: String, "", "what it reads as";
    q_norm: Option<Figure>, "", "‖q‖";
    mean_key_norm: Option<Figure>, "", "mean ‖k‖ of the head's keys";
    cosine: Option<Figure>, "", "mean cosine of the query with the keys it sees";
    score_norm: Option<Figure>, "", "√Σs² of the row's scores";
    score_mean: Option<Figure>, "", "mean of the row's scores";
    score_std: Option<Figure>, "", "their standard deviation";
    entropy: Option<Figure>, "nats", "entropy of the row's weights";
    max_probability: Option<Figure>, "", "the largest of them";
    key: Option<usize>, "position", "the key that has it";
    key_token: String, "", "what that key reads as";
    asks: &'static str, "", "the question";
    bearing: &'static str, "", "what its answer means";
    answer: String, "", "the answer";
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(head) = head(app) else {
        return Vec::new();
    };
    let k_norm = mean_key_norm(head);
    let known = known_columns(app, head);
    let of_queries = head.rows.iter().enumerate().filter(|(_, row)| row.is_real);
    let of_queries = of_queries.map(|(query_idx, row)| {
        let key_idx = row.argmax as usize;
        let mut figures = figures(row, k_norm).zip(known);
        let mut figure = || {
            let (figure, is_known) = figures.next()?;
            is_known.then(|| Figure::from(figure.1))
        };
        Row {
            part: "row",
            query: Some(query_idx),
            token: app.token(Axis::Query, query_idx),
            q_norm: figure(),
            mean_key_norm: figure(),
            cosine: figure(),
            score_norm: figure(),
            score_mean: figure(),
            score_std: figure(),
            entropy: figure(),
            max_probability: figure(),
            key: Some(key_idx),
            key_token: app.token(Axis::Key, key_idx),
            ..Row::at(selected_head(app))
        }
    });
    let asked = asked(app).into_iter().map(|question| Row {
        part: "question",
        asks: question.asks,
        bearing: question.bearing.label(),
        answer: question.answer,
        ..Row::at(selected_head(app))
    });
    asked.chain(of_queries).collect()
}
