Feature: Why
  Whoever is asked "why did I not get it?" can answer: what happened to this phone and this event, when, and what nobody knows.

  Scenario: A push that went out
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once
    And it is said of Ada's phone and the event that it is "accepted"
    And the steps are "event_accepted, handed_out, accepted"
    And it is said that "The device is subscribed to goal on team:42 now."

  Scenario: A phone that had muted the team
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone has muted "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed
    And it is said of Ada's phone and the event that it is "not_selected"
    And it is said that "The device mutes team:42 now, until it is taken back."

  Scenario: A phone that never asked
    Given Ada's phone is known
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed
    And it is said of Ada's phone and the event that it is "not_selected"
    And it is said that "The device is not subscribed to goal on team:42 now."

  Scenario: Pushes that are paused
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the operator has paused "everything"
    When the backend tells of a "goal" about "team:42"
    Then it is said of Ada's phone and the event in the end that it is "paused"
