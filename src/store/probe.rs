//! A look at where a store is or will be, which changes nothing: for `check --probe`.

use super::settings::Place;
use super::{postgres, sqlite};
use crate::finding::Finding;
use crate::time::Clock;

/// Whether a store could be opened there, and what to do where it could not.
pub async fn probe(place: &Place, clock: &Clock) -> Vec<Finding> {
    match place {
        Place::Sqlite(settings) => sqlite::probe::probe(settings),
        Place::Postgres(settings) => postgres::probe::probe(settings, clock).await,
    }
}
