//! Whose a push token is: an address has one device. Also taking tokens away that a provider says are gone.

use tidings_types::{Device, DeviceNumber, DeviceToken, Timestamp};

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::GoneToken;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Table};
use crate::error::{ReadError, WriteError};
use crate::hash::Hash16;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Takes tokens away that the provider says are gone, each only if the device still has it and did not register it
    /// again after `gone_at`. Tells how many were taken.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all taken away or none. The same request again changes nothing more.
    pub async fn tokens_gone(&self, tokens: Vec<GoneToken>) -> Result<usize, WriteError> {
        let bytes = weight::TOKEN * tokens.len();
        self.write(Class::Devices, bytes, move |draft| draft.tokens_gone(tokens)).await
    }

    /// One token, as [`Store::tokens_gone`]; true when it was taken.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// As [`Store::tokens_gone`].
    pub async fn token_gone(
        &self,
        number: DeviceNumber,
        token: DeviceToken,
        gone_at: Option<Timestamp>,
    ) -> Result<bool, WriteError> {
        Ok(self.tokens_gone(vec![GoneToken { number, token, gone_at }]).await? == 1)
    }

    /// The device that has this address.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn device_by_token(&self, token: &DeviceToken) -> Result<Option<Device>, ReadError> {
        let token_key = rows::token_key(token);
        self.with_engine(|engine| {
            let Some(number) = engine.get(Table::Token, &token_key)? else { return Ok(None) };
            let key = rows::number_key(rows::decode_number(Table::Token, &token_key, number.as_ref())?);
            let row =
                engine.get(Table::Device, &key)?.map(|row| rows::decode_device(&key, row.as_ref())).transpose()?;
            // Between the two reads it may have got another.
            let has_it = |device: &Device| device.token.as_ref().is_some_and(|had| rows::token_key(had) == token_key);
            Ok(row.map(|row| row.device).filter(has_it))
        })
    }
}

impl Draft<'_> {
    /// Gives `token` to `number`: whoever had it loses it, and so does `number` the one it had.
    pub(crate) fn move_token(
        &mut self,
        number: DeviceNumber,
        old: Option<&DeviceToken>,
        new: Option<&DeviceToken>,
    ) -> Result<(), EngineError> {
        if let Some(old) = old.filter(|old| Some(*old) != new) {
            self.rows.delete(Table::Token, rows::token_key(old));
        }
        let Some(new) = new else { return Ok(()) };
        let key = rows::token_key(new);
        for holder in self.holders(&key)?.into_iter().filter(|holder| *holder != number) {
            // Whoever has another token by now, as a damaged row may say, keeps it.
            let held = |row: &DeviceRow| row.device.token.as_ref().is_some_and(|token| rows::token_key(token) == key);
            if let Some(mut row) = self.row(holder)?.filter(held) {
                row.device.token = None;
                self.set_proven(holder, false);
                self.put_row_of_same_user(holder, row);
            }
        }
        self.rows.put(Table::Token, key, rows::number_key(number));
        Ok(())
    }

    /// Who has the token of this key. Where its row is damaged, all devices in memory are looked at: an address that
    /// two devices have would be told twice.
    pub(crate) fn holders(&self, key: &Hash16) -> Result<Vec<DeviceNumber>, EngineError> {
        let holder = self
            .get(Table::Token, key)
            .and_then(|row| row.map(|row| rows::decode_number(Table::Token, key, &row)).transpose());
        match damage::tolerate(holder, "Who has a token is asked of memory")? {
            None => {
                let table = self.shared.table.read();
                Ok(table.find_all(|found| found.token.is_some_and(|token| rows::token_key(&token.to_token()) == *key)))
            }
            Some(holder) => Ok(holder.into_iter().collect()),
        }
    }

    pub(crate) fn tokens_gone(&mut self, tokens: Vec<GoneToken>) -> Result<usize, EngineError> {
        let mut taken = 0;
        for GoneToken { number, token, gone_at } in tokens {
            let Some(mut row) = self.row(number)? else {
                // Nobody knows it any more, and nobody is told at this address.
                let has_it = |(_, held): (_, Option<DeviceToken>)| held.as_ref() == Some(&token);
                if self.is_left(number) && self.left_address(number).is_some_and(has_it) {
                    self.forget(number)?;
                    taken += 1;
                }
                continue;
            };
            let same = row.device.token.as_ref().is_some_and(|held| rows::token_key(held) == rows::token_key(&token));
            let newer = gone_at.is_some_and(|gone_at| row.device.token_at > gone_at);
            if same && !newer {
                row.device.token = None;
                self.rows.delete(Table::Token, rows::token_key(&token));
                self.set_proven(number, false);
                self.put_row_of_same_user(number, row);
                taken += 1;
            }
        }
        Ok(taken)
    }
}
