//! The data of the Rows panel: the figures of every query of the selected head, and the answers about it.

use serde::Serialize;

use super::{Column, Figure, HEAD, LAYER, PART, PanelData, STACK, Sheet, column, stack_label};
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
    columns: COLUMNS,
    sheet: |app| Sheet::of(rows(app)),
};

const COLUMNS: &[Column] = &[
    PART,
    STACK,
    LAYER,
    HEAD,
    column("query", "position", "the query"),
    column("token", "", "what it reads as"),
    column("q_norm", "", "‖q‖"),
    column("mean_key_norm", "", "mean ‖k‖ of the head's keys"),
    column(
        "cosine",
        "",
        "mean cosine of the query with the keys it sees",
    ),
    column("score_norm", "", "√Σs² of the row's scores"),
    column("score_mean", "", "mean of the row's scores"),
    column("score_std", "", "their standard deviation"),
    column("entropy", "nats", "entropy of the row's weights"),
    column("max_probability", "", "the largest of them"),
    column("key", "position", "the key that has it"),
    column("key_token", "", "what that key reads as"),
    column("asks", "", "the question"),
    column("bearing", "", "what its answer means"),
    column("answer", "", "the answer"),
];

#[derive(Debug, Default, Serialize)]
struct Row {
    part: &'static str,
    stack: &'static str,
    layer: Option<usize>,
    head: Option<usize>,
    query: Option<usize>,
    token: String,
    q_norm: Option<Figure>,
    mean_key_norm: Option<Figure>,
    cosine: Option<Figure>,
    score_norm: Option<Figure>,
    score_mean: Option<Figure>,
    score_std: Option<Figure>,
    entropy: Option<Figure>,
    max_probability: Option<Figure>,
    key: Option<usize>,
    key_token: String,
    asks: &'static str,
    bearing: &'static str,
    answer: String,
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let Some(head) = head(app) else {
        return Vec::new();
    };
    let place = || Row {
        stack: stack_label(app),
        layer: Some(app.selection.layer_idx),
        head: Some(app.selection.head_idx),
        ..Row::default()
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
            ..place()
        }
    });
    let asked = asked(app).into_iter().map(|question| Row {
        part: "question",
        asks: question.asks,
        bearing: question.bearing.label(),
        answer: question.answer,
        ..place()
    });
    asked.chain(of_queries).collect()
}
