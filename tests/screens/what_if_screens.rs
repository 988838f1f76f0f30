//! What-ifs on screen: before and after, the difference, and the way back.

use attnscope::bundles;
use attnscope_checkpoint::Opening;
use attnscope_checks::stats::Stat;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_prompt::{Request, Target};
use attnscope_screen::{Depth, Effect, Export, Msg, Panel, Shows};
use attnscope_spec::Stack;
use crossterm::event::KeyCode;
use testing::screen::Screen;

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

const TEXT: &str =
    "the old king gave a red apple to his good horse , and the old king gave a red apple";

fn demo(size: (u16, u16)) -> Screen {
    Screen::open(None, Request::text(TEXT), size, Depth::Truecolor)
}

fn translator(size: (u16, u16)) -> Screen {
    let opening = Opening {
        bundle: bundles::named("unscaled-translator"),
        ..Opening::default()
    };
    let request = Request {
        target: Target::Text("the year seventeen sixty one".to_owned()),
        ..Request::text("das jahr siebzehn hundert ein und sechzig")
    };
    Screen::open(opening, request, size, Depth::Truecolor)
}

fn shows(name: &str, (width, height): (u16, u16), screen: &mut Screen) {
    insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen.picture());
}

fn add_what_if(screen: &mut Screen, words: &str) {
    screen.typed("w");
    screen.typed(words);
    screen.key(KeyCode::Enter);
}

#[test]
fn pictures() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.go(Panel::Compare);
        shows("what_if_nothing", size, &mut screen);
        screen.typed("w");
        shows("what_if_list", size, &mut screen);
        screen.typed("becomes its");
        screen.key(KeyCode::Tab);
        shows("what_if_list_narrowed", size, &mut screen);
        screen.key(KeyCode::Esc);
        add_what_if(&mut screen, "scale=x3@L0");
        shows("what_if", size, &mut screen);
        screen.typed("s");
        shows("what_if_scores", size, &mut screen);
        screen.typed("sv");
        screen.go(Panel::Overview);
        shows("what_if_overview_difference", size, &mut screen);
        screen.go(Panel::Head);
        shows("what_if_head_difference", size, &mut screen);
        screen.go(Panel::Scores);
        shows("what_if_scores_difference", size, &mut screen);
        screen.go(Panel::Tokens);
        shows("what_if_tokens_difference", size, &mut screen);
        screen.go(Panel::Rows);
        shows("what_if_rows_difference", size, &mut screen);
    }
}

#[test]
fn the_data_of_a_change_hold_both_sides_and_those_of_one_side_its_own() {
    let mut screen = demo((120, 40));
    screen.go(Panel::Rows);
    let sides = |screen: &mut Screen| -> Vec<(String, String)> {
        let export = Export::of(&screen.app, false).expect("an export");
        let mut table = csv::Reader::from_reader(export.csv.as_slice());
        let names = table.headers().expect("names").clone();
        let entropy = names.iter().position(|name| name == "entropy");
        let entropy = entropy.expect("a column");
        let rows = table.records().map(|row| row.expect("a row"));
        let last = names.len() - 1;
        assert_eq!(&names[last], "side");
        rows.map(|row| (row[last].to_owned(), row[entropy].to_owned()))
            .collect()
    };
    let plain = sides(&mut screen);
    assert!(plain.iter().all(|(side, _)| side.is_empty()));
    add_what_if(&mut screen, "scale=none");
    let after = sides(&mut screen);
    assert!(after.iter().all(|(side, _)| side == "after"));
    screen.typed("v");
    let both = sides(&mut screen);
    assert!(screen.text().contains("Showing B − A"));
    assert_eq!(both.len(), 2 * plain.len());
    let (first, second) = both.split_at(plain.len());
    assert!(first.iter().all(|(side, _)| side == "before"));
    assert_eq!(second, after);
    let entropies = |rows: &[(String, String)]| -> Vec<String> {
        rows.iter().map(|(_, entropy)| entropy.clone()).collect()
    };
    assert_eq!(entropies(first), entropies(&plain));
    assert_ne!(entropies(first), entropies(&after));
}

#[test]
fn a_change_is_after_less_before() {
    let mut screen = demo((120, 40));
    add_what_if(&mut screen, "scale=none@L0");
    let [before, after] = screen
        .app
        .scene()
        .both_layers(Stack::Only, 0)
        .expect("both");
    let of = |layer: &attnscope_checks::stats::LayerReport| layer.heads[0].stats.of(Stat::Entropy);
    let moved = of(after) - of(before);
    assert!(moved < -0.1, "{moved}");
    screen.typed("v");
    screen.go(Panel::Scores);
    assert!(screen.text().contains(&format!("{moved:.3}")));
    screen.go(Panel::Tokens);
    let text = screen.text();
    assert!(
        text.contains("change of probability") && text.contains("nats per token (+"),
        "{text}"
    );
}

#[test]
fn rows() {
    for size in SIZES {
        let mut screen = demo(size);
        screen.go(Panel::Rows);
        shows("rows", size, &mut screen);
        let mut screen = translator(size);
        screen.go(Panel::Rows);
        shows("rows_translator", size, &mut screen);
        screen.go(Panel::Overview);
        shows("overview_translator", size, &mut screen);
    }
}

/// The statistic of a head as it is shown.
fn entropy(screen: &Screen, layer_idx: usize, head_idx: usize) -> f64 {
    let layers = screen.app.scene().layers_of(Stack::Only);
    layers[layer_idx].heads[head_idx].stats.of(Stat::Entropy)
}

#[test]
fn sides_come_in_turn_and_clearing_leads_back() {
    let mut screen = demo((120, 40));
    let before = [entropy(&screen, 0, 0), entropy(&screen, 1, 0)];
    add_what_if(&mut screen, "scale=none@L0");
    let after = [entropy(&screen, 0, 0), entropy(&screen, 1, 0)];
    assert!(after[0] < before[0] && after[1] != before[1]);
    assert!(screen.text().contains("WHAT IF scale=none@L0  Showing B"));
    screen.typed("v");
    assert!(screen.text().contains("Showing B − A"));
    screen.typed("v");
    assert!(screen.text().contains("Showing A"));
    assert_eq!([entropy(&screen, 0, 0), entropy(&screen, 1, 0)], before);
    screen.typed("v");
    assert_eq!([entropy(&screen, 0, 0), entropy(&screen, 1, 0)], after);
    screen.typed("W");
    assert_eq!([entropy(&screen, 0, 0), entropy(&screen, 1, 0)], before);
    assert!(!screen.text().contains("WHAT IF"));
    screen.typed("v");
    assert!(screen.text().contains("press w"));
}

#[test]
fn changes_add_up_and_the_last_can_be_taken_back() {
    let mut screen = demo((120, 40));
    add_what_if(&mut screen, "softmax_axis=queries");
    add_what_if(&mut screen, "drop=zero@L1H0");
    let attention = |screen: &Screen| {
        let model = screen
            .app
            .scene()
            .subject()
            .and_then(|subject| subject.model().cloned())
            .expect("a model");
        let block = model.spec.main_stack().blocks()[1].clone();
        (
            block.own().expect("attention").attention.softmax_axis,
            block.own().expect("attention").exceptions.ablated.len(),
        )
    };
    assert_eq!(attention(&screen), (SoftmaxAxis::Queries, 1));
    screen.typed("w");
    screen.key(KeyCode::Delete);
    assert_eq!(attention(&screen), (SoftmaxAxis::Queries, 0));
    screen.typed("W");
    assert_eq!(attention(&screen), (SoftmaxAxis::Keys, 0));
}

#[test]
fn another_text_keeps_the_what_ifs() {
    let mut screen = demo((120, 40));
    add_what_if(&mut screen, "temperature=3");
    screen.typed("e");
    screen.typed(" the end");
    screen.key(KeyCode::Enter);
    let runs = screen.app.scene().both_runs().expect("both");
    assert!(runs.iter().all(|run| run.outcome().is_some()));
    assert!(runs[0].prompt.tokens.len() > 18);
    assert!(screen.text().contains("WHAT IF temperature=3  Showing B"));
    let [before, after] = screen
        .app
        .scene()
        .both_layers(Stack::Only, 0)
        .expect("both");
    let of = |layer: &attnscope_checks::stats::LayerReport| layer.stats.of(Stat::Entropy);
    assert!(of(after) > of(before));
}

#[test]
fn what_cannot_be_is_said_and_the_checkpoint_stays() {
    let mut screen = translator((120, 40));
    add_what_if(&mut screen, "softmax_axis=queries");
    assert!(screen.text().contains("input feeding"));
    assert!(screen.app.runs.b.is_none());
    add_what_if(&mut screen, "scale=none@L7");
    assert!(screen.text().contains("there is no L7"));
    screen.typed("w");
    screen.typed("heads=3");
    screen.key(KeyCode::Enter);
    assert!(screen.text().contains("unknown key"));
}

#[test]
fn a_translator_heals_when_its_scores_are_scaled() {
    let mut screen = translator((120, 40));
    add_what_if(&mut screen, "scale=inv_sqrt_d");
    let [before, after] = screen
        .app
        .scene()
        .both_layers(Stack::Cross, 0)
        .expect("both");
    let relative = |layer: &attnscope_checks::stats::LayerReport| {
        layer.heads[0].stats.of(Stat::EntropyRelative)
    };
    assert!(relative(before) < 0.2 && relative(after) > 0.9);
    let std =
        |layer: &attnscope_checks::stats::LayerReport| layer.heads[0].stats.of(Stat::ScoreStd);
    assert!(std(before) > 5.0 && std(after) < 1.5);
    screen.go(Panel::Rows);
    let text = screen.text();
    let answer = text.lines().find(|line| line.contains("is it the scores?"));
    assert!(
        answer.is_some_and(|line| line.contains("not the cause")),
        "{text}"
    );
}

#[test]
fn a_head_whose_question_gave_way_to_one_about_the_other_run_is_asked_for_again() {
    let mut screen = demo((120, 40));
    add_what_if(&mut screen, "scale=none@L0");
    screen.go(Panel::Head);
    // Both maps are gone; of two questions the newer one stands.
    let runs = &mut screen.app.runs;
    let second = runs.b.as_mut().and_then(|second| second.run.as_mut());
    let ids: Vec<_> = [runs.a.as_mut(), second]
        .into_iter()
        .flatten()
        .map(|run| {
            (run.detail, run.awaited) = (None, None);
            run.id
        })
        .collect();
    let mut asked = |side: Shows| {
        screen.app.show_side(side);
        let effects = screen.app.update(Msg::Continued);
        let looks = effects.into_iter().filter_map(|effect| match effect {
            Effect::LookAt(run, _) => Some(run),
            _ => None,
        });
        looks.collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(asked(Shows::A), ids[..1]);
        assert!(asked(Shows::A).is_empty());
        assert_eq!(asked(Shows::B), ids[1..]);
    }
}
