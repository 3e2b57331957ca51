//! Our store with the data of the comparison.

use tidings_server::command_error::CommandError;
use tokio::time::Instant;

use super::task::{Found, SIZES, Task};
use crate::audience::select::{self, Audience};
use crate::audience::{bulk, update};
use crate::folder::{disk_bytes, temporary};
use crate::store;

/// Measures our store. Also finds the audiences of the comparison.
pub(super) async fn measure(task: &mut Task<'_>) -> Result<Found, CommandError> {
    task.progress("ours", "load");
    let folder = temporary(task.dir)?;
    let mut store = store::open(folder.path()).await?;
    let began = Instant::now();
    bulk::import_all(task.data, &store).await?;
    let load_seconds = began.elapsed().as_secs_f64();
    store.close().await;
    let mut found = Found { load_seconds, disk_bytes: disk_bytes(folder.path())? as f64, ..Found::default() };
    store = store::open(folder.path()).await?;
    bulk::order(&store).await?;
    task.audiences = select::find(task.data, &store, &SIZES);
    task.audiences.retain(Audience::has_subjects); // The other stores are asked by subjects only.
    for audience in &task.audiences {
        found.digests.push(audience.check(task.data, &store)?);
        let times = (0..task.runs).map(|_| audience.hand_out(&store));
        found.select_millis.push(times.map(|it| it.map(|it| it.all.as_secs_f64() * 1e3)).collect::<Result<_, _>>()?);
    }
    let device_count = task.data.device_count;
    found.updates =
        task.time_updates("ours", async |first| update::measure_ours(&store, device_count, first).await).await?;
    store.close().await;
    Ok(found)
}
