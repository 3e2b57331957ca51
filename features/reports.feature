Feature: The backend hears of the end
  When everybody has been told of an event, the backend is told so: signed, and however often one of them falls over.

  Background:
    Given the backend wants to hear when an event is done

  Scenario: The backend hears how many were pushed
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then the backend hears that it is done, with 1 phone pushed
    And the backend has heard of it once

  Scenario: Nobody wanted to know
    Given Ada's phone is subscribed to "red_card" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then the backend hears that it is done, with 0 phones pushed

  Scenario: The backend is down for a while
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the backend cannot hear for now
    When the backend tells of a "goal" about "team:42"
    And the server has tried to reach the backend
    And the backend can hear again
    Then the backend hears that it is done, with 1 phone pushed

  Scenario: The server dies before the backend has heard
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the backend cannot hear for now
    When the backend tells of a "goal" about "team:42"
    And the server has tried to reach the backend
    And the server is killed and started again
    And the backend can hear again
    Then the backend hears that it is done, with 1 phone pushed
