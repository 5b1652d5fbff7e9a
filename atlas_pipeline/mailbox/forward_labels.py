"""The words mail programs put around a forwarded mail: labels of its header, and lines that announce it.

The library in ``forward_library.py`` knows some twenty languages with exact spellings; these add the languages and
programs that it lacks, compared without case, bold marks and width. Not here: how a block is read (``forward_blocks.py``).
"""

from __future__ import annotations

from typing import Final

# "sent" is a date that Outlook writes, and Outlook writes it above an answer too.
_LABELS: Final = {
    "from": """from|de|von|od|fra|van|da|dal|från|lähettäjä|šalje|feladó|küldte|expeditorul|expeditor|de la|отправитель|от|от кого
        |від|від кого|відправник|kimden|gönderen|saatja|mittente|nadawca|odesílatel|odosielateľ|pošiljatelj|pošilja|expéditeur
        |absender|remitente|remetente|afzender|avsender|avsändare|afsender|sender|送信元|差出人|送信者|发件人|發件人|寄件者|寄件人
        |보낸 사람|보낸사람|보낸이|발신|발신자|από|αποστολέας|מאת|من|المرسل|từ|người gửi|dari|pengirim|nuo|siuntėjas|no|sūtītājs
        |подател|пошиљалац|шаље|frá|จาก|ผู้ส่ง|از|فرستنده""",
    "to": """to|komu|til|an|para|vastaanottaja|à|a|prima|za|címzett|aan|do|adresat|destinatarul|către|destinatar|кому|pre|pro|till
        |kime|alıcı|pour|destinataire|destinataires|empfänger|destinatario|destinatário|ontvanger|mottaker|mottagare|modtager|送信先
        |宛先|收件人|收件者|받는 사람|받는사람|받는이|수신|수신자|προς|παραλήπτης|אל|إلى|đến|tới|người nhận|kepada|ke|kam|gavėjas
        |adresāts|kellele|saaja|per a|per|до|получатель|одержувач|прима|viðtakandi|ถึง|به|گیرنده""",
    "cc": """cc|kopie|kopio|másolat|másolatot kap|másolatot kapnak|kopi|dw|копия|kopia|bilgi|копія|kópia|kopie (cc)|copie à|copie
        |copia|cópia|c.c.|kopio kohteelle|抄送|副本|참조|写し|κοιν.|κοινοποίηση|העתק|نسخة|đồng gửi|tembusan|kopija|koopia|còpia|kk""",
    "bcc": """bcc|cci|cco|ccn|cbc|bkz|skrytá kopie|blindkopie|密件抄送|密件副本|숨은 참조|копия скрытая|udw|dolda|hemlig kopia""",
    "reply-to": """reply-to|reply to|odgovori na|odpověď na|svar til|antwoord aan|vastaus|répondre à|antwort an|válaszcím|rispondi a
        |odpowiedź-do|responder a|răspuns către|ответ-кому|odpovedať-pre|svara till|yanıt adresi|кому відповісти|返信先|回复|회신""",
    "date": """date|datum|dato|fecha|päivämäärä|päiväys|dátum|data|dată|дата|tarih|日付|日期|日時|날짜|ημερομηνία|ημ/νία|תאריך|التاريخ
        |ngày|tanggal|kuupäev|datums|dags.|dagsetning|датум|วันที่|تاریخ|date d'envoi|datum/uhrzeit|时间|時間""",
    "sent": """sent|envoyé|envoyée|gesendet|enviado|enviada|enviado el|enviada em|enviado em|inviato|verzonden|skickat|skickades|sendt
        |lähetetty|odesláno|odoslané|wysłano|wysłane|elküldve|trimis|отправлено|відправлено|надіслано|gönderilen|gönderildi
        |gönderme tarihi|poslano|poslane|saadetud|išsiųsta|nosūtīts|изпратено|послато|送信日時|送信日|发送时间|寄件日期|傳送時間
        |傳送日期|已发送|보낸 날짜|στάλθηκε|נשלח|تم الإرسال|đã gửi|dikirim|enviat|sent on|sent at|date sent""",
    "subject": """subject|předmět|věc|emne|betreff|asunto|aihe|objet|predmet|tárgy|oggetto|onderwerp|temat|assunto|subiectul|subiect
        |тема|ämne|konu|sujet|naslov|zadeva|件名|主题|主題|主旨|标题|제목|θέμα|נושא|الموضوع|chủ đề|tiêu đề|perihal|subjek|tema|teema
        |temats|относно|наслов|assumpte|efni|หัวข้อ|เรื่อง|موضوع""",
    "other": """importance|importancia|importância|importanza|priority|priorité|priorität|priorità|wichtigkeit|prioridad|prioridade
        |belang|attachments|attachment|anlagen|anlage|anhang|pièces jointes|pièce jointe|allegati|allegato|adjuntos|datos adjuntos
        |anexos|bijlagen|bilagor|vedlegg|přílohy|załączniki|вложения|sensitivity|categories|organization|organisation|user-agent
        |x-mailer|message-id|list-id|mailing-list|in-reply-to|references|mime-version|content-type|via|signed-by|mailed-by""",
}


def folded(words: str) -> str:
    """Return words as they are compared: without case (the Turkish dotted I included) and without double spaces."""
    return " ".join(words.casefold().replace("\u0307", "").split())


def _spellings(words: str) -> list[str]:
    return [folded(word) for word in words.split("|")]


LABELS: Final = {word: field for field, words in _LABELS.items() for word in _spellings(words)}

# Between dashes, one of these is enough: they are stems, so that every program's own wording is covered.
FORWARD_STEMS: Final = tuple(
    _spellings("""forward|fwd|transfér|transmis|réexpédi|weitergeleitet|reenviad|reencaminhad|encaminhad|inoltrat|doorgestuurd
    |doorgezonden|videresend|vidarebefordr|vidaresend|przekazan|przesłan|přeposl|předan|preposl|továbbít|redirec|пересл
    |пересыл|перенаправ|переадрес|iletil|ileti başl|yönlendir|välitet|edelleenl|proslij|prosleđ|posredovan|edastatud
    |persiųst|pārsūt|препратен|прослеђ|reenviat|転送|转发|轉寄|轉發|전달|προωθ|הועבר|מועבר|محول|معاد توجيه|chuyển tiếp|diteruskan
    |áframsend|ส่งต่อ""")
)

# Alone on a line that ends with a colon: here the whole wording counts, since a sentence may speak of forwarding.
FORWARD_LINES: Final = frozenset(
    _spellings("""begin forwarded message|forwarded message|start of forwarded message|začátek přeposílané zprávy
    |start på videresendt besked|anfang der weitergeleiteten nachricht|anfang der weitergeleiteten e-mail|weitergeleitete nachricht
    |inicio del mensaje reenviado|mensaje reenviado|välitetty viesti alkaa|début du message réexpédié|début du message transféré
    |message transféré|message réexpédié|započni proslijeđenu poruku|továbbított levél kezdete|továbbított üzenet kezdete
    |inizio messaggio inoltrato|messaggio inoltrato|begin doorgestuurd bericht|doorgestuurd bericht|videresendt melding
    |starten på en videresendt melding|początek przekazywanej wiadomości|início da mensagem reencaminhada
    |início da mensagem encaminhada|mensagem encaminhada|începe mesajul redirecționat|începutul mesajului redirecționat
    |начало переадресованного сообщения|začiatok preposlanej správy|vidarebefordrat mejl|vidarebefordrat brev|ileti başlangıcı
    |iletilen mesaj başlangıcı|початок листа, що пересилається|початок пересланого повідомлення
    |転送されたメッセージ|転送メッセージ|以下是转发的邮件|开始转发的邮件|下面是被转发的邮件|以下是轉寄的郵件|開始轉寄郵件|전달된 메시지
    |αρχή προωθημένου μηνύματος|תחילת ההודעה שהועברה|بدء الرسالة المعاد توجيهها|inici del missatge reenviat
    |bắt đầu thư được chuyển tiếp|awal pesan terusan""")
)

# The verb of the line above a quoted answer ("On Monday, Ann wrote:").
ANSWER_VERBS: Final = tuple(
    _spellings("""wrote|écrit|schrieb|geschrieben|escribió|scritto|schreef|geschreven|skrev|escreveu|napisał|napsal|napísal
    |kirjoitti|ezt írta|a scris|написал|писал|пише|написав|yazdı|je napisao|pišal|έγραψε|写道|寫道|書きました|작성""")
)
