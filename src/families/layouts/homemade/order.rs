//! The order of tensors of a layer that are alike: by numbers, by words, by shapes, and by the modules in which they stand.

use super::stack::Entry;
use crate::reading::described::names::{Role, score};

/// The last number in a name.
pub fn number(entry: &Entry) -> Option<usize> {
    let word = entry.words.iter().rev().find_map(|word| word.parse().ok());
    let ordinals = [("first", 1), ("second", 2)];
    word.or_else(|| {
        let found = ordinals.iter().find(|(word, _)| entry.has_word(&[word]));
        found.map(|(_, number)| *number)
    })
}

/// Puts the map up before the map down, by numbers or by words.
pub fn in_order(two: &mut [&Entry]) -> Option<()> {
    let [a, b] = [two[0], two[1]];
    let is_in_order = match (number(a), number(b)) {
        (Some(a), Some(b)) if a != b => a < b,
        _ => {
            let up =
                |entry: &Entry| score(Role::Up, &entry.words) - score(Role::Down, &entry.words);
            let (a, b) = (up(a), up(b));
            if a == b {
                return by_names_of_two(two);
            }
            a > b
        }
    };
    if !is_in_order {
        two.swap(0, 1);
    }
    Some(())
}

/// Maps whose names say nothing: as `nn.Linear` stores them, the map up has more rows.
fn by_names_of_two(two: &mut [&Entry]) -> Option<()> {
    let rows = [two[0].shape[0], two[1].shape[0]];
    if rows[0] == rows[1] || two.iter().any(|entry| !entry.first.ends_with("weight")) {
        return None;
    }
    if rows[0] < rows[1] {
        two.swap(0, 1);
    }
    Some(())
}

/// The map down among three: the one of another shape, or the one that names tell.
pub fn odd_one(three: &[&Entry]) -> Option<usize> {
    let shapes: Vec<&Vec<usize>> = three.iter().map(|entry| &entry.shape).collect();
    let odd = |at: usize| {
        let others: Vec<usize> = (0..3).filter(|idx| *idx != at).collect();
        shapes[at] != shapes[others[0]] && shapes[others[0]] == shapes[others[1]]
    };
    if let Some(at) = (0..3).find(|at| odd(*at)) {
        return Some(at);
    }
    let numbers: Vec<Option<usize>> = three.iter().map(|entry| number(entry)).collect();
    if numbers.iter().flatten().count() == 3 {
        return numbers.iter().position(|number| *number == Some(2));
    }
    let is_down = |entry: &&Entry| entry.has_word(&["down"]);
    let mut downs = three.iter().enumerate().filter(|(_, entry)| is_down(entry));
    match (downs.next(), downs.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    }
}

/// How many more parts the name of a norm shares with the first tensor than with the second one.
pub fn nearness(norm: &Entry, [first, second]: [Option<&Entry>; 2]) -> i32 {
    let shared = |other: Option<&Entry>| {
        let names = other.map(|other| norm.template.split('.').zip(other.template.split('.')));
        let same = names.map(|names| names.take_while(|(own, other)| own == other).count());
        same.unwrap_or(0) as i32
    };
    shared(first) - shared(second)
}
