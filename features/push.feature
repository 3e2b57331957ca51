Feature: Push
  Whoever subscribed and is not connected gets a push notification: one, in time, and none that was not asked for.

  Scenario: A phone is pushed
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once

  Scenario: A phone that follows both teams is pushed once
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone is subscribed to "goal" of "team:43"
    When the backend tells of a "goal" about "team:42" and "team:43"
    Then Ada's phone is pushed once

  Scenario: A phone that asked for something else is left in peace
    Given Ada's phone is subscribed to "score" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed
    When the backend tells of a "score" about "team:42"
    Then Ada's phone is pushed once

  Scenario: An event for connected apps only
    Given Ada's phone is subscribed to "goal" of "match:1"
    And Bob's app is connected and follows "match:1"
    When the backend tells of a "goal" about "match:1" with push "never"
    Then Bob's app gets the event once
    And Ada's phone is not pushed

  Scenario: The same event twice is one event
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of the event "goal-1" about "team:42" twice
    Then Ada's phone is pushed once

  Scenario: Two different events under one id are refused
    When the backend tells of the event "goal-1" about "team:42"
    And the backend tells of another event "goal-1" about "team:43"
    Then the second is refused as a conflict

  Scenario: An app that was removed from the phone is not pushed again
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the provider says that Ada's phone has removed the app
    When the backend tells of a "goal" about "team:42"
    And the server has noted that Ada's phone cannot be reached any more
    And the backend tells of another "goal" about "team:42"
    Then the provider was asked once for Ada's phone

  Scenario: A provider that is overloaded gets the notification later
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the provider refuses everything for now, as it is overloaded
    When the backend tells of a "goal" about "team:42"
    And the provider has refused it
    And the provider takes everything again
    Then Ada's phone is pushed once

  Scenario: An event that comes too late is not pushed
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the provider cannot be reached for now
    When the backend tells of a "goal" about "team:42" that is worth telling for 1 second
    And the time of the event is over
    And the provider answers again
    Then Ada's phone is not pushed
    And the event counts 1 device that it came too late for

  Scenario: A correction takes the place of what is shown
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" with collapse key "match-1-score"
    And Ada's phone has got it
    And the backend tells of another "goal" about "team:42" with collapse key "match-1-score"
    Then Ada's phone was pushed 2 times and shows 1 notification

  Scenario: An app is woken without showing anything
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" silently
    Then Ada's phone is woken once, and shows nothing

  Scenario: A muted team is silent
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone has muted "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed
    When Ada's phone has muted "team:42" no longer
    And the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once
