"""Site de la Menuiserie Lorme. Une fonction, ``handle(chemin)``, rend (statut, type, contenu) pour chaque page."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

DOSSIER = Path(__file__).resolve().parent
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json; charset=utf-8",
}
MENU = {"/": "Accueil", "/equipe": "L’équipe", "/devis": "Devis en ligne", "/contact": "Contact"}
EQUIPE = {
    "gerante": "Claire Lorme",
    "atelier": "Yannick Peltier",
    "pose": "Samira Benali",
}


def handle(path: str) -> tuple[int, str, bytes]:
    """Répond à une requête GET."""
    contenu = json.loads((DOSSIER / "content.json").read_text(encoding="utf-8"))
    if path.startswith("/static/"):
        return fichier(path)
    if path == "/version":
        version = DOSSIER / "VERSION"
        return 200, "text/plain; charset=utf-8", version.read_bytes() if version.is_file() else b"inconnue\n"
    pages = {"/": accueil, "/equipe": equipe, "/devis": devis, "/contact": contact}
    if path not in pages:
        return page(404, path, contenu, "<h1>Page introuvable</h1><p>Cette page n’existe pas ou n’existe plus.</p>")
    return page(200, path, contenu, pages[path](contenu))


def fichier(path: str) -> tuple[int, str, bytes]:
    """Un fichier du dossier static, et de nulle part ailleurs."""
    racine = DOSSIER / "static"
    cible = (DOSSIER / path.lstrip("/")).resolve()
    if racine not in cible.parents or not cible.is_file() or cible.suffix not in TYPES:
        return 404, "text/plain; charset=utf-8", b"Fichier introuvable\n"
    return 200, TYPES[cible.suffix], cible.read_bytes()


def accueil(contenu: dict[str, str]) -> str:
    """La page d'accueil."""
    return f"""
    <section class="une">
      <div>
        <p class="sur">Menuiserie artisanale depuis {escape(contenu["depuis"])}</p>
        <h1>Le bois, posé pour longtemps.</h1>
        <p>{escape(contenu["accroche"])}</p>
        <a class="bouton" href="/devis">Estimer mon projet</a>
      </div>
      <img src="/static/fenetre.svg" alt="Fenêtre en chêne à deux vantaux" width="360" height="360">
    </section>
    <section class="cartes">
      <article><h2>Fenêtres</h2><p>Chêne ou pin des Landes, double vitrage, dans l’esprit de votre façade.</p></article>
      <article><h2>Portes</h2><p>Portes d’entrée et portes intérieures, pleines ou vitrées, à vos mesures.</p></article>
      <article><h2>Escaliers</h2><p>Droits ou tournants : dessinés avec vous, montés en deux jours.</p></article>
    </section>"""


def equipe(contenu: dict[str, str]) -> str:
    """La page de l'équipe."""
    return f"""
    <h1>L’équipe</h1>
    <p>Trois métiers, un seul atelier, à {escape(contenu["ville"])}.</p>
    <section class="cartes">
      <article><h2>{escape(EQUIPE["responsable"])}</h2><p>Gérante. Elle vous reçoit et suit le chantier.</p></article>
      <article><h2>{escape(EQUIPE["atelier"])}</h2><p>Chef d’atelier. Il choisit chaque pièce de bois.</p></article>
      <article><h2>{escape(EQUIPE["pose"])}</h2><p>Responsable de la pose. Elle laisse la maison propre.</p></article>
    </section>"""


def devis(_contenu: dict[str, str]) -> str:
    """Le calculateur de devis."""
    return """
    <h1>Devis en ligne</h1>
    <p>Une première estimation, pose comprise. Nous venons ensuite prendre les mesures, sans engagement.</p>
    <form class="devis" id="devis">
      <label>Ouvrage
        <select name="ouvrage">
          <option value="890">Fenêtre deux vantaux</option>
          <option value="1650">Porte d’entrée</option>
          <option value="4200">Escalier</option>
        </select>
      </label>
      <label>Quantité <input name="quantite" type="number" min="1" max="50" value="2"></label>
      <label class="case"><input name="chene" type="checkbox"> En chêne massif (+ 20 %)</label>
      <p class="total">Estimation : <output id="total">…</output></p>
    </form>
    <script src="/static/devis.js"></script>"""


def contact(contenu: dict[str, str]) -> str:
    """La page de contact."""
    telephone = contenu["telephone"]
    return f"""
    <h1>Contact</h1>
    <p>L’atelier est ouvert {escape(contenu["horaires"])}.</p>
    <dl class="coordonnees">
      <dt>Téléphone</dt><dd><a href="tel:{escape(telephone.replace(" ", ""))}">{escape(telephone)}</a></dd>
      <dt>E-mail</dt><dd><a href="mailto:{escape(contenu["email"])}">{escape(contenu["email"])}</a></dd>
      <dt>Adresse</dt><dd>{escape(contenu["adresse"])}<br>{escape(contenu["ville"])}</dd>
    </dl>"""


def page(statut: int, path: str, contenu: dict[str, str], corps: str) -> tuple[int, str, bytes]:
    """Le gabarit commun à toutes les pages."""
    liens = "".join(
        f'<a href="{adresse}"{" aria-current=page" if adresse == path else ""}>{nom}</a>'
        for adresse, nom in MENU.items()
    )
    nom = escape(contenu["nom"])
    html = f"""<!doctype html>
<html lang="fr">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{escape(MENU.get(path, "Page introuvable"))} – {nom}</title>
  <link rel="stylesheet" href="/static/style.css">
  <link rel="icon" href="/static/icone.svg" type="image/svg+xml">
</head>
<body>
  <header>
    <a class="marque" href="/"><img src="/static/icone.svg" alt="" width="34" height="34">{nom}</a>
    <nav>{liens}</nav>
  </header>
  <main>{corps}
  </main>
  <footer>
    <span>{nom}, {escape(contenu["adresse"])}, {escape(contenu["ville"])}</span>
    <span>{escape(contenu["telephone"])}</span>
  </footer>
</body>
</html>
"""
    return statut, "text/html; charset=utf-8", html.encode()
