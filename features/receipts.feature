Feature: Push by evidence
  Who has the event on the screen already is not pushed as well. Not who is connected: who proved to have got it.

  Background:
    Given Ada's phone is subscribed to "goal" of "match:1"

  Scenario: Ada sees it in the app
    Given Ada's app is on the screen, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once
    And Ada's phone is not pushed
    And the event counts 1 device as having received it

  Scenario: Ada sees it in the app that she has had open for a while
    Given Ada's app is on the screen, connected and follows "match:1"
    And Ada's app has been connected for a while
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once
    And Ada's phone is not pushed
    And the event counts 1 device as having received it

  Scenario: Ada sees it in an app that speaks Protobuf
    Given Ada's app speaks Protobuf
    And Ada's app is on the screen, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once
    And Ada's phone is not pushed
    And the event counts 1 device as having received it

  Scenario: Ada's app speaks Protobuf and is in the background
    Given Ada's app speaks Protobuf
    And Ada's app is in the background, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: Ada's app is connected, but in the background
    Given Ada's app is in the background, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: Ada's app went to the background before
    Given Ada's app is on the screen, connected and follows "match:1"
    And Ada's app goes to the background
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: Ada's app does not say any more that it is on the screen
    Given Ada's app is in the background, connected and follows "match:1"
    And Ada's app says that it is on the screen for 1 second, and then nothing more
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: Ada sees it on her phone, not on her tablet
    Given Ada's tablet is subscribed to "goal" of "match:1"
    And Ada's app is on the screen, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is not pushed
    And Ada's tablet is pushed once

  Scenario: Ada's app hangs
    Given Ada's app is on the screen, connected and follows "match:1"
    And Ada's app hangs
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once
    And it was not pushed before the wait for receipts was over

  Scenario: Ada's app hangs, and not from the beginning
    Given Ada's app is on the screen, connected and follows "match:1"
    And Ada's app has been connected for a while
    And Ada's app hangs
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once
    And it was not pushed before the wait for receipts was over

  Scenario: Ada's app comes back in time
    Given Ada's app is on the screen, connected and follows "match:1"
    And Ada's app hangs
    When the backend tells of a "goal" about "match:1" and waits 5 seconds for receipts
    And the server waits for Ada's app
    And Ada's app loses its connection and comes back
    Then Ada's app gets the event once
    And Ada's phone is not pushed

  Scenario: Ada's app leaves the channel before it answers
    Given Ada's app is on the screen, connected and follows "match:1"
    And Ada's app has been connected for a while
    And Ada's app hangs
    When the backend tells of a "goal" about "match:1"
    And the server waits for Ada's app
    And Ada's app leaves "match:1" and wakes up
    Then Ada's phone is pushed once

  Scenario: Ada follows another channel
    Given Ada's app is on the screen, connected and follows "match:2"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: Nobody can silence another's phone
    Given Eve's app is on the screen, says that it is Ada's phone and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: An old credential silences nobody
    Given Ada's phone has got a new credential
    And an app with the old credential of Ada's phone is on the screen and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is pushed once

  Scenario: A token of the backend's proves the phone
    Given Ada's app is on the screen, connected by a token for Ada's phone and follows "match:1"
    When the backend tells of a "goal" about "match:1"
    Then Ada's phone is not pushed

  Scenario: An event that everybody is pushed
    Given Ada's app is on the screen, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1" with push "always"
    Then Ada's app gets the event once
    And Ada's phone is pushed once

  Scenario: An event for which the background is good enough
    Given Ada's app is in the background, connected and follows "match:1"
    When the backend tells of a "goal" about "match:1" with receipt policy "any"
    Then Ada's phone is not pushed

  Scenario: A phone that is not connected is not kept waiting
    When the backend tells of a "goal" about "match:1" and waits 30 seconds for receipts
    Then Ada's phone is pushed once within 5 seconds

  Scenario: The backend asks who got it
    Given Ada's app is on the screen, connected and follows "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend tells of a "goal" about "match:1" and wants to know who got it
    Then the backend learns that 2 of 2 connections got it
    And it is told that these were "ada" and "bob"

  Scenario: A client that answers pings it was never sent is sent away
    Given Eve's app is connected
    When Eve's app answers a ping that never came
    Then Eve's app is disconnected with code 3501

  Scenario: Ada logs out
    Given Ada's app is on the screen, connected and follows "match:1"
    And Bob's phone is subscribed to "goal" of "match:1"
    When the backend logs Ada's phone out
    And the backend tells of a "goal" about "match:1"
    Then Ada's app is disconnected
    And Ada's phone is not pushed
    And Bob's phone is pushed once
