"""Writes schemas.jsonl: twenty named JSON schemas with the question that asks for such an answer.

make_schemas.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Schema = dict[str, Any]


def text(length: int = 40) -> Schema:
    return {"type": "string", "maxLength": length}


def integer(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def items(schema: Schema, least: int = 1, most: int = 4) -> Schema:
    return {"type": "array", "items": schema, "minItems": least, "maxItems": most}


def record(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


NUMBER: Schema = {"type": "number", "minimum": 0, "maximum": 10000}
FLAG: Schema = {"type": "boolean"}
DATE: Schema = {"type": "string", "format": "date"}

SCHEMAS: dict[str, tuple[str, Schema]] = {
    "person": (
        "Invent a customer of a bicycle shop.",
        record(
            first_name=text(20), last_name=text(20), age=integer(18, 99), email=text(), is_member=FLAG, city=text(20)
        ),
    ),
    "book": (
        "Describe the novel Moby-Dick.",
        record(
            title=text(), author=text(30), year=integer(1000, 2030), genres=items(text(20)), page_count=integer(1, 2000)
        ),
    ),
    "weather": (
        "Give a plausible weather report for Oslo in January.",
        record(
            city=text(20),
            temperature_celsius=integer(-50, 50),
            condition=one_of("clear", "cloudy", "rain", "snow"),
            wind=record(speed_kmh=integer(0, 200), direction=one_of("north", "east", "south", "west")),
            humidity_percent=integer(0, 100),
        ),
    ),
    "invoice": (
        "Write an invoice for three office supplies.",
        record(
            invoice_number=integer(1, 99999),
            date=DATE,
            lines=items(record(description=text(30), quantity=integer(1, 99), unit_price=NUMBER), 3, 3),
            currency=one_of("EUR", "USD", "GBP"),
            is_paid=FLAG,
        ),
    ),
    "recipe": (
        "Give a short recipe for pancakes.",
        record(
            name=text(30),
            servings=integer(1, 12),
            ingredients=items(record(name=text(20), amount=integer(1, 1000), unit=one_of("g", "ml", "pieces")), 3),
            steps=items(text(), 2),
        ),
    ),
    "ticket": (
        "A user cannot log in since this morning. Open a support ticket.",
        record(
            title=text(),
            priority=one_of("low", "medium", "high", "urgent"),
            category=one_of("login", "billing", "other"),
            description=text(),
            affected_users=integer(1, 10000),
            tags=items(text(15)),
        ),
    ),
    "event": (
        "Plan a team meeting about the next release.",
        record(
            title=text(), date=DATE, duration_minutes=integer(5, 480), attendees=items(text(20), 2), location=text(30)
        ),
    ),
    "sentiment": (
        "Judge this review: 'The battery lasts two days, but the screen scratches easily.'",
        record(
            sentiment=one_of("positive", "neutral", "negative", "mixed"),
            score=integer(0, 100),
            aspects=items(record(name=text(20), opinion=one_of("positive", "negative")), 2),
        ),
    ),
    "address": (
        "Give the address of a fictional bakery in Lyon.",
        record(
            name=text(30),
            street=text(30),
            house_number=integer(1, 999),
            postal_code=text(10),
            city=text(20),
            country=text(20),
        ),
    ),
    "movie": (
        "Describe a science fiction film of your choice.",
        record(
            title=text(),
            director=text(30),
            year=integer(1900, 2030),
            rating=NUMBER,
            cast=items(record(actor=text(25), role=text(25)), 2),
        ),
    ),
    "function": (
        "Describe a function that adds two integers.",
        record(
            name=text(20),
            parameters=items(record(name=text(10), type=one_of("int", "float", "str")), 2, 2),
            return_type=one_of("int", "float", "str", "None"),
            is_pure=FLAG,
            docstring=text(),
        ),
    ),
    "configuration": (
        "Write a configuration for a small web server.",
        record(
            server=record(host=text(20), port=integer(1, 65535), workers=integer(1, 64)),
            logging=record(level=one_of("debug", "info", "warning"), file=text(30)),
            cache=record(enabled=FLAG, ttl_seconds=integer(0, 86400)),
        ),
    ),
    "country": (
        "Give facts about Portugal.",
        record(
            name=text(20),
            capital=text(20),
            population_millions=NUMBER,
            languages=items(text(15)),
            is_in_europe=FLAG,
            currency=text(20),
        ),
    ),
    "order": (
        "A customer orders two pizzas and a salad.",
        record(
            order_id=integer(1, 99999),
            items=items(record(name=text(20), quantity=integer(1, 9), price=NUMBER), 2),
            delivery=record(method=one_of("pickup", "courier"), minutes=integer(1, 180)),
            total=NUMBER,
        ),
    ),
    "quiz": (
        "Write a quiz question about the planets.",
        record(
            question=text(60),
            choices=items(text(20), 4),
            answer_index=integer(0, 3),
            difficulty=one_of("easy", "medium", "hard"),
        ),
    ),
    "entities": (
        "Extract names from: 'Marie Curie worked in Paris and won the Nobel Prize in 1903.'",
        record(persons=items(text(25)), places=items(text(25)), years=items(integer(0, 2100)), prizes=items(text(25))),
    ),
    "exercise": (
        "Plan three exercises for a short workout.",
        record(
            name=text(25),
            exercises=items(
                record(name=text(25), sets=integer(1, 6), repetitions=integer(1, 30), rest_seconds=integer(0, 300)), 3
            ),
        ),
    ),
    "route": (
        "Describe a train trip from Berlin to Vienna with one change.",
        record(
            origin=text(20),
            destination=text(20),
            legs=items(record(departure=text(20), arrival=text(20), minutes=integer(1, 900)), 2, 2),
            price_eur=NUMBER,
        ),
    ),
    "commit": (
        "Summarize a commit that fixes a crash when a file is empty.",
        record(
            type=one_of("feat", "fix", "docs", "test"),
            scope=text(15),
            summary=text(),
            files=items(text(30)),
            is_breaking=FLAG,
        ),
    ),
    "plant": (
        "Describe how to care for a cactus.",
        record(
            name=text(20),
            light=one_of("low", "medium", "bright"),
            water_days=integer(1, 60),
            temperature=record(min_celsius=integer(-20, 40), max_celsius=integer(-20, 50)),
            tips=items(text(), 2),
        ),
    ),
}


def main() -> None:
    """Writes the file beside this script."""
    lines = [
        json.dumps({"name": name, "question": question, "schema": schema})
        for name, (question, schema) in SCHEMAS.items()
    ]
    Path(__file__).with_name("schemas.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
