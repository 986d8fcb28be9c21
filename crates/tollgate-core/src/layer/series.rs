//! The series that [`Metrics`](super::Metrics) writes: their names are put together once, not for every lock.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, with_recorder};

static ABOUT: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// One series. Whoever records is asked for it anew each time: it may have been set up since.
pub(super) struct Series(Key);

impl Series {
    pub(super) fn new(name: &'static str, backend: &'static str) -> Self {
        Self(Key::from_parts(name, vec![Label::from_static_parts("backend", backend)]))
    }

    /// One of several that differ in a label.
    pub(super) fn of(
        name: &'static str,
        backend: &'static str,
        label: &'static str,
        value: &'static str,
    ) -> Self {
        let labels =
            vec![Label::from_static_parts("backend", backend), Label::from_static_parts(label, value)];
        Self(Key::from_parts(name, labels))
    }

    pub(super) fn counter(&self) -> Counter {
        with_recorder(|recorder| recorder.register_counter(&self.0, &ABOUT))
    }

    pub(super) fn gauge(&self) -> Gauge {
        with_recorder(|recorder| recorder.register_gauge(&self.0, &ABOUT))
    }

    pub(super) fn histogram(&self) -> Histogram {
        with_recorder(|recorder| recorder.register_histogram(&self.0, &ABOUT))
    }
}
