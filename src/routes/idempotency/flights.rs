//! Calls that run in this process: who comes with their key waits for them, or is told so, without asking the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::store::records::{Fingerprint, RecordKey};

/// The calls that run here. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<RecordKey, Flight>>>);

/// A call that runs.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// Of its request.
    pub(super) fingerprint: Fingerprint,
    ended: CancellationToken,
}

impl Flight {
    /// Waits until it has ended and its end is recorded.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Ends its flight when dropped, however the call ended. Not `Clone`: a second one would end another's flight.
#[derive(Debug)]
pub(super) struct Landing {
    flights: Flights,
    key: RecordKey,
    ended: CancellationToken,
}

impl Flights {
    /// The call of this key.
    pub(super) fn get(&self, key: &RecordKey) -> Option<Flight> {
        self.lock().get(key).cloned()
    }

    /// A call begins: its key was free, and is its own now.
    pub(super) fn begin(&self, key: RecordKey, fingerprint: Fingerprint) -> Landing {
        let ended = CancellationToken::new();
        let flight = Flight {
            fingerprint,
            ended: ended.clone(),
        };
        // One that was there has lost its key while it ran; whoever waits for it is woken by its own landing.
        self.lock().insert(key.clone(), flight);
        Landing {
            flights: self.clone(),
            key,
            ended,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RecordKey, Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        {
            let mut flights = self.flights.lock();
            // Only its own: the key may have been taken anew.
            if flights.get(&self.key).is_some_and(|flight| flight.ended == self.ended) {
                flights.remove(&self.key);
            }
        }
        self.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RouteName;

    fn key() -> RecordKey {
        RecordKey {
            route: RouteName::new("orders"),
            digest: [1; 32],
        }
    }

    #[tokio::test]
    async fn who_waits_is_woken_when_the_call_has_ended() {
        let flights = Flights::default();
        let landing = flights.begin(key(), Fingerprint([1; 32]));
        let flight = flights.get(&key()).unwrap();
        drop(landing);
        flight.ended().await;
        assert!(flights.get(&key()).is_none());
    }

    #[tokio::test]
    async fn a_call_that_lost_its_key_ends_no_other() {
        let flights = Flights::default();
        let lost = flights.begin(key(), Fingerprint([1; 32]));
        let first = flights.get(&key()).unwrap();
        let _second = flights.begin(key(), Fingerprint([2; 32]));
        drop(lost);
        first.ended().await;
        assert_eq!(flights.get(&key()).unwrap().fingerprint, Fingerprint([2; 32]));
    }
}
