//! Tables in NumPy files: streamed, so that only the requested rows are held in memory.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use attnscope_compute::error::{Error, Result};
use zip::ZipArchive;

use super::{Embeddings, Source, chosen, table_of};
use crate::data_file::{DataFile, Reader};
use crate::inflation::too_large;
use crate::machine::mebibytes;
use crate::npy::{Npy, unreadable};

/// Limit on the numbers of a table: four million words of a thousand numbers each. More would take minutes to stream.
const MOST_NUMBERS: u64 = 1 << 32;
/// Limit on the inflated bytes of a member, whatever its entry claims.
const MOST_BYTES: u64 = MOST_NUMBERS * 8 + (1 << 20);

type Archive = ZipArchive<BufReader<Reader>>;

fn archive(file: &DataFile) -> Result<Archive> {
    ZipArchive::new(BufReader::new(file.reader()?))
        .map_err(|e| Error::file(file.path(), format!("is not a .npz archive ({e})")))
}

/// Opens a table in an archive.
pub(super) fn open_archive(file: DataFile) -> Result<Embeddings> {
    let mut opened = archive(&file)?;
    let names = opened.file_names().filter_map(|member| {
        let name = member.ok()?.strip_suffix(".npy")?.to_owned();
        Some(name)
    });
    let names: Vec<String> = names.collect();
    let name = chosen(&names, "an array called").map_err(|e| Error::file(file.path(), e))?;
    let member = format!("{name}.npy");
    let header = {
        let stored = opened.by_name(&member);
        let stored = stored.map_err(|e| damaged(&file, &name, &unreadable(&e)))?;
        if let Some(expected) = too_large(&file, stored.size()) {
            let problem = format!("inflates to {}, {expected}", mebibytes(stored.size()));
            return Err(damaged(&file, &name, &problem));
        }
        let n_bytes = stored.size();
        header(stored, n_bytes).map_err(|e| damaged(&file, &name, &e))?
    };
    drop(opened);
    Ok(described(&file, header, Source::Npz(file.clone(), member)))
}

/// Opens a table that is a single `.npy` file.
pub(super) fn open_array(file: DataFile) -> Result<Embeddings> {
    let header = header(BufReader::new(file.reader()?), file.len() as u64);
    let header = header.map_err(|e| Error::file(file.path(), e))?;
    Ok(described(&file, header, Source::Npy(file.clone())))
}

fn damaged(file: &DataFile, name: &str, problem: &str) -> Error {
    Error::tensor(file.path(), name, problem)
}

struct Header {
    n_rows: usize,
    width: usize,
    stored_as: String,
}

/// Reads an array's header and checks it against the array's size in bytes.
fn header(stored: impl Read, n_bytes: u64) -> std::result::Result<Header, String> {
    let array = Npy::open(stored, MOST_NUMBERS)?;
    array.fits_into(n_bytes)?;
    if !array.is_float() {
        let found = array.stored_as();
        return Err(format!("expected floating point, found {found}"));
    }
    let (n_rows, width) = table_of(&array.shape)?;
    Ok(Header {
        n_rows,
        width,
        stored_as: array.stored_as(),
    })
}

fn described(file: &DataFile, header: Header, source: Source) -> Embeddings {
    Embeddings {
        path: file.path().to_path_buf(),
        n_rows: header.n_rows,
        width: header.width,
        stored_as: header.stored_as,
        source,
    }
}

pub(super) fn rows_of_archive(
    table: &Embeddings,
    file: &DataFile,
    member: &str,
    wanted: &[usize],
) -> Result<Vec<f32>> {
    let name = member.trim_end_matches(".npy");
    let mut opened = archive(file)?;
    let stored = opened.by_name(member);
    let stored = stored.map_err(|e| damaged(file, name, &unreadable(&e)))?;
    let read = rows(table, stored.take(MOST_BYTES), wanted);
    read.map_err(|e| damaged(file, name, &e))
}

pub(super) fn rows_of_array(
    table: &Embeddings,
    file: &DataFile,
    wanted: &[usize],
) -> Result<Vec<f32>> {
    let stored = BufReader::new(file.reader()?);
    rows(table, stored, wanted).map_err(|e| Error::file(&table.path, e))
}

/// Reads the requested rows. All of the array is read, so that an archive's checksum is verified.
fn rows(
    table: &Embeddings,
    mut stored: impl Read,
    wanted: &[usize],
) -> std::result::Result<Vec<f32>, String> {
    let (n_rows, width) = (table.n_rows, table.width);
    let mut slot_of: BTreeMap<usize, usize> = BTreeMap::new();
    for row in wanted {
        let next = slot_of.len();
        slot_of.entry(*row).or_insert(next);
    }
    let mut found = vec![0.0f32; slot_of.len() * width];
    let array = Npy::open(&mut stored, MOST_NUMBERS)?;
    if array.shape != [n_rows, width] {
        return Err("changed while it was read".to_owned());
    }
    let is_fortran = array.is_fortran;
    let mut last: Option<(usize, Option<usize>)> = None;
    array.each(&mut |idx, value| {
        let (row, column) = if is_fortran {
            (idx % n_rows, idx / n_rows)
        } else {
            (idx / width, idx % width)
        };
        // A row's numbers are consecutive, so its slot is looked up once.
        let slot = match last {
            Some((seen, slot)) if seen == row => slot,
            _ => slot_of.get(&row).copied(),
        };
        last = Some((row, slot));
        if let Some(slot) = slot {
            found[slot * width + column] = value as f32;
        }
    })?;
    // A member's checksum follows its last number.
    std::io::copy(&mut stored, &mut std::io::sink()).map_err(|e| unreadable(&e))?;
    let rows = wanted.iter().filter_map(|row| slot_of.get(row));
    Ok(rows
        .flat_map(|slot| found[slot * width..(slot + 1) * width].to_vec())
        .collect())
}
